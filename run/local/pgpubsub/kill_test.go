package pgpubsub_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"coldaisle.dev/run/local/pgpubsub"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/postgres"
	"coldaisle.dev/shared/pubsubtest"
)

// These make this test binary run a server, over a database or over a PostgreSQL
// of its own in a folder, until it is killed.
const (
	databaseOfChild = "COLDAISLE_TEST_PGPUBSUB_DATABASE"
	folderOfChild   = "COLDAISLE_TEST_PGPUBSUB_FOLDER"
	addressOfChild  = "COLDAISLE_TEST_PGPUBSUB_ADDRESS"
)

func child(database, dir, address string) error {
	ctx := context.Background()
	if dir != "" {
		server, err := postgres.Start(ctx, postgres.Options{Dir: dir, Log: logging.Discard()})
		if err != nil {
			return err
		}
		database = server.URL()
	}
	config := pgpubsub.Config{DatabaseURL: database, Address: address, Clock: time.Now, Log: logging.Discard()}
	if _, err := pgpubsub.Open(ctx, config); err != nil {
		return err
	}
	fmt.Println("listening")
	select {}
}

// victim is a server in a process of its own, at the same address every time.
type victim struct {
	environ []string
	command *exec.Cmd
}

func (v *victim) start(t *testing.T) {
	t.Helper()
	v.command = exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])
	v.command.Env = append(os.Environ(), v.environ...)
	output, err := v.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.command.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if line != "listening\n" {
		v.kill()
		if strings.HasPrefix(line, postgres.ErrNone.Error()) {
			pgtest.SkipUnlessAvailable(t, fmt.Errorf("%w, says the child", postgres.ErrNone))
		}
		t.Fatalf("the child said %q, %v", line, err)
	}
}

func (v *victim) kill() {
	_ = v.command.Process.Kill()
	_ = v.command.Wait() // it was killed
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(pubsubtest.FreePort(t)))
}

// load publishes and consumes while the server comes and goes, and keeps the
// account.
type load struct {
	client *pubsub.Client
	next   atomic.Int64

	mu       sync.Mutex
	answered map[string]bool           // messages that a publisher was told are taken
	received map[string]map[string]int // how often each came, by subscription
	acked    map[string]map[string]bool
	ids      map[string]string // of the service, by message
	late     int               // deliveries of what had been acknowledged
}

func newLoad(client *pubsub.Client) *load {
	l := &load{
		client: client, answered: map[string]bool{}, ids: map[string]string{},
		received: map[string]map[string]int{}, acked: map[string]map[string]bool{},
	}
	for _, s := range []string{"ingest", "detect"} {
		l.received[s], l.acked[s] = map[string]int{}, map[string]bool{}
	}
	return l
}

// publish sends one message after the other until the context ends. The library
// repeats a publish that fails, so that some are taken twice.
func (l *load) publish(ctx context.Context) {
	for ctx.Err() == nil {
		name := fmt.Sprintf("message %d", l.next.Add(1))
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := l.client.TopicAdminClient.Publish(call, &pubsubpb.PublishRequest{
			Topic: topicName("data"), Messages: []*pubsubpb.PubsubMessage{text(name)},
		})
		cancel()
		if err == nil {
			l.mu.Lock()
			l.answered[name] = true
			l.mu.Unlock()
		}
	}
}

// consume pulls and acknowledges until the context ends.
func (l *load) consume(ctx context.Context, subscription string) {
	for ctx.Err() == nil {
		if l.consumeOnce(ctx, subscription) == 0 {
			time.Sleep(2 * time.Millisecond) // as the bridge does
		}
	}
}

func (l *load) consumeOnce(ctx context.Context, subscription string) int {
	call, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	response, err := l.client.SubscriptionAdminClient.Pull(call, &pubsubpb.PullRequest{
		Subscription: subscriptionName(subscription), MaxMessages: 50, ReturnImmediately: true, //nolint:staticcheck // as the bridge does
	})
	if err != nil || len(response.GetReceivedMessages()) == 0 {
		return 0
	}
	l.mu.Lock()
	for _, r := range response.GetReceivedMessages() {
		name := string(r.GetMessage().GetData())
		l.received[subscription][name]++
		if l.acked[subscription][name] {
			l.late++
		}
	}
	l.mu.Unlock()
	if err := l.client.SubscriptionAdminClient.Acknowledge(call, &pubsubpb.AcknowledgeRequest{
		Subscription: subscriptionName(subscription), AckIds: ackIDs(response.GetReceivedMessages()),
	}); err == nil {
		l.mu.Lock()
		for _, r := range response.GetReceivedMessages() {
			l.acked[subscription][string(r.GetMessage().GetData())] = true
		}
		l.mu.Unlock()
	}
	return len(response.GetReceivedMessages())
}

// kills runs load against a server that is killed so often, at random moments,
// and checks that whatever was answered is delivered to both subscriptions.
func kills(t *testing.T, v *victim, address string, times int, kill func()) {
	t.Helper()
	v.environ = append(v.environ, addressOfChild+"="+address)
	v.start(t)
	t.Cleanup(func() { v.kill() })
	client := connect(t, address)
	resources(t, client, "data", "ingest", "detect")
	l := newLoad(client)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var publishing, consuming sync.WaitGroup
	for range 8 {
		publishing.Go(func() { l.publish(ctx) })
	}
	consumed, stopConsuming := context.WithCancel(t.Context())
	defer stopConsuming()
	consuming.Go(func() { l.consume(consumed, "ingest") })
	consuming.Go(func() { l.consume(consumed, "detect") })
	for range times {
		before := l.next.Load()
		eventually(t, "publishes go through again", func() bool { return l.next.Load() > before+20 })
		time.Sleep(time.Duration(rand.Int64N(int64(200 * time.Millisecond)))) // a random moment of the load
		kill()
		v.start(t)
	}
	stop()
	publishing.Wait()
	eventually(t, "what is left is delivered", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for name := range l.answered {
			if l.received["ingest"][name] == 0 || l.received["detect"][name] == 0 {
				return false
			}
		}
		return true
	})
	stopConsuming()
	consuming.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("%d kills: %d publishes, %d of them answered, and all of those delivered; %d deliveries after an acknowledgement",
		times, l.next.Load(), len(l.answered), l.late)
	if len(l.answered) < 10*times {
		t.Errorf("only %d publishes were answered: too few to show anything", len(l.answered))
	}
}

func TestKilledServerLosesNothing(t *testing.T) {
	t.Parallel()
	v := &victim{environ: []string{databaseOfChild + "=" + pgtest.URL(t)}}
	kills(t, v, freeAddress(t), 20, v.kill)
}

// TestKilledMachineLosesNothing kills PostgreSQL, too.
func TestKilledMachineLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := &victim{environ: []string{folderOfChild + "=" + dir}}
	pidFile := filepath.Join(dir, "data", "postmaster.pid")
	kills(t, v, freeAddress(t), 3, func() {
		content, err := os.ReadFile(pidFile)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := bytes.Cut(content, []byte("\n"))
		pid, err := strconv.Atoi(string(first))
		if err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		v.kill()
		eventually(t, "PostgreSQL is gone", func() bool { return syscall.Kill(pid, 0) != nil })
	})
}
