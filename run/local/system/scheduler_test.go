package system

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
)

// TestJobsAreThoseOfCloudScheduler compares what is published here with terraform.
func TestJobsAreThoseOfCloudScheduler(t *testing.T) {
	t.Parallel()
	source := must.Get(os.ReadFile("../../../terraform/main.tf"))(t)
	inProduction := map[string]string{}
	member := regexp.MustCompile(`(\w+) = `)
	for _, block := range strings.Split(string(source), "\nresource \"google_cloud_scheduler_job\" ")[1:] {
		topic := regexp.MustCompile(`topic_name = module\.topic\["([\w-]+)"\]`).FindStringSubmatch(block)
		data := regexp.MustCompile(`base64encode\(jsonencode\(\{ (.*) \}\)\)`).FindStringSubmatch(block)
		if topic == nil || data == nil {
			t.Fatalf("no topic or no data in %s", block)
		}
		inProduction[topic[1]] = "{" + strings.ReplaceAll(member.ReplaceAllString(data[1], `"$1":`), ", ", ",") + "}"
	}
	here := map[string]string{}
	for _, j := range jobs() {
		here[j.topic] = j.data
	}
	must.Equal(t, "topology (-terraform +local)", inProduction, here)
}
