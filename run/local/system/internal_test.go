package system

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/edge-gateway/nodesim/site"
	"coldaisle.dev/shared/logging"
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

// TestAnnouncedGatewayReportsItsName checks that /health and /metrics of an announced
// gateway have its name's state, and that its nodes have limits.
func TestAnnouncedGatewayReportsItsName(t *testing.T) {
	t.Parallel()
	for address, announced := range map[string]bool{"0.0.0.0:0": true, "127.0.0.1:0": false} {
		listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp4", address))(t)
		t.Cleanup(func() { _ = listener.Close() })
		s := &System{log: logging.Discard(), failed: make(chan error, 1), options: Options{Clock: time.Now}}
		var config gateway.Config
		s.announce(t.Context(), listener, nil, &config)
		must.Do(t, s.Stop())
		got := config.Discovery != nil && len(config.Checks) == 1 && len(config.Collectors) > 0 && config.NodeRate == 50 && config.AddressRate == 1000
		must.Hold(t, got == announced, "%s: %+v", address, config)
	}
}

// A demo without a past shows an alert within its first minute, at any speed, and only of its first room.
func TestHotFaults(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	for seed := range uint64(24) {
		rooms := site.New(site.Options{Seed: seed, Rooms: 2, PerRoom: 4})
		for _, speed := range []float64{1, 20, 1000} {
			hot := map[string]bool{}
			for number, place := range rooms.Places() {
				its := fault.Of(hotFaults(begin, speed), place.Room, place.Node)
				for second := range 60 {
					at := begin.Add(time.Duration(float64(second) * speed * float64(time.Second)))
					if at.Before(begin.Add(6*time.Hour)) && rooms.Measure(number, at, its).Temperature > 50 {
						hot[place.Room] = true
					}
				}
			}
			must.Equal(t, fmt.Sprintf("rooms over 50 °C of seed %d at speed %g", seed, speed), map[string]bool{"room1": true}, hot)
		}
	}
}
