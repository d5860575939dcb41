package redeliverytest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"

	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/tooltest"
)

// TestPauseAndResume runs the commands of docs/operations.md by gcloud itself against its
// emulator, which pushes as the service does: messages wait while a function is paused,
// the other function of the topic goes on, and after the resumption all come.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	gcloud, err := exec.LookPath("gcloud")
	if err != nil {
		tooltest.Skip(t, "gcloud is not installed")
	}
	address, connection := pubsubtest.Emulator(t)
	client := must.Get(pubsub.NewClient(t.Context(), project, option.WithGRPCConn(connection)))(t)
	t.Cleanup(func() { _ = client.Close() })
	var mu sync.Mutex
	handled := map[string][]string{} // data by function
	mux := http.NewServeMux()
	for _, route := range queue.Routes() {
		mux.Handle("/"+route.Function, push.Handler(push.Config{Function: route.Function, Clock: time.Now, Log: logging.Discard()},
			func(_ context.Context, m push.Message) error {
				mu.Lock()
				defer mu.Unlock()
				handled[route.Function] = append(handled[route.Function], string(m.Data))
				return nil
			}))
	}
	has := func(function, data string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(handled[function], data)
		}
	}
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	must.Do(t, system.EnsureTopology(t.Context(), client, project, func(function string) string { return web.URL + "/" + function }, queue.Policy{}))
	publish := func(data string) {
		t.Helper()
		must.Get(client.TopicAdminClient.Publish(t.Context(), &pubsubpb.PublishRequest{
			Topic: queue.TopicName(project, queue.TopicData), Messages: []*pubsubpb.PubsubMessage{{Data: []byte(data)}},
		}))(t)
	}
	run := func(command string) {
		t.Helper()
		shell := exec.CommandContext(t.Context(), "sh", "-ec", command)
		shell.Env = append(os.Environ(), "URL="+web.URL+"/ingest", "CLOUDSDK_CONFIG="+t.TempDir(), "CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true",
			"CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB=http://"+address+"/", "PATH="+os.Getenv("PATH"))
		if output, err := shell.CombinedOutput(); err != nil {
			t.Fatalf("%s (%s): %v\n%s", command, gcloud, err, output)
		}
	}
	pause, resume := pauseCommands(t)

	publish("before")
	eventually(t, "ingest is called", has("ingest", "before"))
	run(pause)
	waiting := []string{"one", "two", "three"}
	for _, data := range waiting {
		publish(data)
		eventually(t, "detect is called", has("detect", data))
	}
	// They wait where somebody may look at them, and nobody has posted them.
	seen := map[string]string{} // acknowledgement ids by data
	eventually(t, "all messages wait", func() bool {
		pulled, err := client.SubscriptionAdminClient.Pull(t.Context(), &pubsubpb.PullRequest{
			Subscription: queue.SubscriptionName(project, "ingest"), MaxMessages: 10, ReturnImmediately: true, //nolint:staticcheck // nothing to wait for
		})
		must.Do(t, err)
		for _, m := range pulled.GetReceivedMessages() {
			seen[string(m.GetMessage().GetData())] = m.GetAckId()
		}
		return len(seen) == len(waiting)
	})
	for _, data := range waiting {
		if seen[data] == "" || has("ingest", data)() {
			t.Errorf("message %q of a paused function: waiting are %v", data, seen)
		}
		must.Do(t, client.SubscriptionAdminClient.ModifyAckDeadline(t.Context(), &pubsubpb.ModifyAckDeadlineRequest{
			Subscription: queue.SubscriptionName(project, "ingest"), AckIds: []string{seen[data]},
		}))
	}
	run(resume)
	publish("after")
	for _, data := range append(waiting, "after") {
		eventually(t, "ingest has "+data, has("ingest", data))
	}
}

// pauseCommands returns the two commands of the page, for ingest.
func pauseCommands(t *testing.T) (pause, resume string) {
	t.Helper()
	page := must.Get(os.ReadFile("../../../docs/operations.md"))(t)
	text := strings.ReplaceAll(string(page), "\\\n", "")
	found := regexp.MustCompile(`(?m)^gcloud pubsub subscriptions modify-push-config .*$`).FindAllString(text, -1)
	if len(found) != 2 {
		t.Fatalf("the page has %q", found)
	}
	for i := range found {
		found[i] = strings.NewReplacer(" FUNCTION ", " ingest ", "--project P", "--project "+project, "@P.", "@"+project+".").Replace(found[i])
	}
	return found[0], found[1]
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting: %s", what)
		}
		time.Sleep(10 * time.Millisecond) // between two polls of the condition
	}
}
