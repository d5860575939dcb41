package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

var errAway = errors.New("uplink down")

func body(id string, temperature float64) string {
	return fmt.Sprintf(`{"id":%q,"node_id":"n1","temperature":%g,"humidity":40}`, id, temperature)
}

// TestFailedPublishIsKeptAndDelivered shows contract 8.8.
func TestFailedPublishIsKeptAndDelivered(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, gateway.Config{ProbeEvery: time.Millisecond}, nil)
	s.message(body("a0", 20))
	s.published.fail(errAway)
	var want []time.Time
	for i := range 5 {
		s.pass(30 * time.Second)
		must.Equal(t, "answer", kept, s.answer(body(fmt.Sprintf("a%d", i+1), 21)))
		want = append(want, s.clock())
	}
	must.Equal(t, "tries of Pub/Sub, which was known to be away", 2, s.published.tries())
	must.Contain(t, "health", s.health(), `"status":"degraded"`, `"up":false`, `"readings":5`)
	s.pass(time.Hour)
	s.published.fail(nil)
	s.run()
	all := s.delivered(6)
	var got []time.Time
	for i, data := range all[1:] {
		got = append(got, data.Reading.Time)
		must.Equal(t, fmt.Sprintf("window of reading %d", i), i+1, data.Recent.Len())
	}
	must.Equal(t, "times of the backlog (-taken +delivered)", want, got)
	must.Eventually(t, "health", func() bool {
		health := s.health()
		return strings.Contains(health, `"status":"healthy"`) && strings.Contains(health, `"readings":0`)
	})
}

// TestRetry sends a reading again that was answered with 500, before and after
// restarts and deliveries: it must stay one reading. Contract 8.7.
func TestRetry(t *testing.T) {
	t.Parallel()
	s := newRestartable(t)
	s.published.fail(errAway)
	taken := s.clock()
	for range 3 {
		must.Equal(t, "answered", 500, s.message(body("a1", 20)))
		s.pass(time.Minute)
	}
	must.Equal(t, "messages in the outbox after three attempts of one reading", 1, s.box.Stats().Pending)

	// After a restart, with Pub/Sub still away.
	s.stop()
	s.start()
	second := s.clock()
	s.message(body("a2", 21)) // takes the uplink down
	s.message(body("a1", 20))
	must.Equal(t, "messages in the outbox", 2, s.box.Stats().Pending)
	s.published.fail(nil)
	s.delivered(2)
	must.Equal(t, "a retry after delivery was answered", 200, s.message(body("a1", 20)))
	identities := map[reading.Identity]bool{}
	all := s.published.all()
	for _, data := range all {
		identities[data.Reading.Identity()] = true
	}
	if len(all) != 3 || len(identities) != 2 || !identities[reading.Identity{NodeID: "n1", MessageID: "a1", Time: taken}] {
		t.Errorf("published %v, want a1 twice with its original time, and a2", identities)
	}

	// After another restart, when the outbox has been emptied: the node did not hear that its reading was delivered.
	must.Eventually(t, "an empty outbox", func() bool { return s.box.Stats().Pending == 0 })
	s.stop()
	s.start()
	s.pass(time.Minute)
	s.message(body("a2", 21))
	must.Equal(t, "a2 after a restart is of", second, s.published.last().Reading.Time)
	must.Contain(t, "the list after the restart", s.get("/api/v1/nodes"), `"total":1`)
}

// TestReasonOfAnOutage has one of two publishes in flight fail. The other then stops waiting: the
// reason that is told stays that of the first.
func TestReasonOfAnOutage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	waits := make(chan struct{})
	s.published.judge(func(ctx context.Context, m gateway.Message, _ bool) error {
		if m.NodeID == "n1" {
			<-waits
			return errAway
		}
		close(waits)
		<-ctx.Done()
		return ctx.Err()
	})
	var both sync.WaitGroup
	for _, node := range []string{"n1", "n2"} {
		both.Go(func() {
			must.Equal(t, "answered", 500, s.message(fmt.Sprintf(`{"id":"a","node_id":%q,"temperature":20,"humidity":40}`, node)))
		})
	}
	both.Wait()
	must.Contain(t, "health", s.health(), `"reasons":["publishing: uplink down"]`)
	must.Contain(t, "the metrics of one fault", s.get("/metrics"), `gateway_publish_faults_total{reason="other"} 1`)
}

// TestNothingCanBeKept has Pub/Sub away and the outbox gone: a trial now and
// then finds out when readings can be published again.
func TestNothingCanBeKept(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, gateway.Config{ProbeEvery: time.Millisecond}, noOutbox(errors.New("read-only file system")))
	s.published.fail(errAway)
	for i := range 3 {
		must.Equal(t, "answered", 500, s.message(body(strconv.Itoa(i), 20)))
	}
	must.Contain(t, "health", s.health(), `"status":"failing"`, `"dropped":3`, `"outbox: read-only file system"`)
	must.Contain(t, "the metrics", s.get("/metrics"), `gateway_outbox_dropped_total{reason="disk"} 3`)
	s.published.fail(nil)
	s.pass(time.Second)
	s.run()
	must.Eventually(t, "a live reading to be tried", func() bool { return s.message(body("z", 20)) == 200 })
}

func TestFullOutboxIsCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		nodes  int
		later  string // five minutes after the last was lost
	}{
		{"share", 1, `"status":"degraded"`},
		{"full", 100, `"outbox: outbox is full"`},
	} {
		box := must.Get(outbox.Open(t.TempDir(), outbox.Options{MaxBytes: 4 << 10, Clock: time.Now}))(t)
		t.Cleanup(func() { _ = box.Close() })
		s := newSiteWith(t, gateway.Config{}, box)
		s.published.fail(errAway)
		for i := range 100 {
			s.message(fmt.Sprintf(`{"id":"%d","node_id":"n%d","temperature":20,"humidity":40}`, i, i%c.nodes))
			s.pass(time.Second)
		}
		kept := box.Stats().Pending
		must.Contain(t, c.reason+": the metrics", s.get("/metrics"),
			fmt.Sprintf("gateway_outbox_readings %d\n", kept),
			fmt.Sprintf("gateway_outbox_dropped_total{reason=%q} %d\n", c.reason, 100-kept),
			"gateway_messages_accepted_total 100\n", "gateway_publishing 0\n",
		)
		must.Hold(t, kept != 0 && kept != 100, "%s: %d of 100 readings kept in 4 KiB", c.reason, kept)
		const lost = `"status":"failing","reasons":["publishing: uplink down","outbox: it has no room, readings are lost"]`
		must.Contain(t, c.reason+": health", s.health(), lost)
		s.pass(5 * time.Minute)
		if health := s.health(); strings.Contains(health, "readings are lost") || !strings.Contains(health, c.later) {
			t.Errorf("%s: five minutes later health says %s", c.reason, health)
		}
	}
}

// TestMetrics shows contract 8.12.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.message(body("1", 20))
	s.message(`{}`)
	s.published.fail(errAway)
	s.message(body("2", 20))
	must.Contain(t, "the metrics", s.get("/metrics")+"\n",
		"gateway_messages_accepted_total 2\n", "gateway_messages_published_total 1\n",
		"gateway_requests_rejected_total{reason=\"invalid\"} 1\n", "gateway_nodes 1\n", "gateway_publish_seconds_count 2\n",
		"gateway_outbox_readings 1\n",
	)
}

// TestNodeMetrics shows what nodes measure, while they do, and only where it is wanted. Contract 12.8.
func TestNodeMetrics(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, gateway.Config{NodeMetrics: true}, openBox(t, t.TempDir(), time.Now))
	s.message(body("1", 20.5))
	s.send(http.MethodPost, "/api/v1/heartbeat", `{"node_id":"quiet"}`)
	answer := s.get("/metrics")
	must.Contain(t, "the metrics", answer,
		`coldaisle_temperature_celsius{node_id="n1"} 20.5`, `coldaisle_relative_humidity_ratio{node_id="n1"} 0.4`, `coldaisle_dew_point_celsius{node_id="n1"} 6.`,
		`coldaisle_last_reading_timestamp_seconds{node_id="n1"} 1.7`, `coldaisle_sensor_up{node_id="n1"} 1`,
	)
	must.Hold(t, !strings.Contains(answer, "quiet"), "a node without a reading has metrics")
	for _, by := range []time.Duration{5 * time.Minute, -24 * time.Hour} { // the clock was a day ahead until now
		s.pass(by)
		answer, list := s.get("/metrics"), s.get("/api/v1/nodes")
		what := fmt.Sprint("the metrics ", by, " later")
		must.Contain(t, what, answer, `coldaisle_sensor_up{node_id="n1"} 0`, "coldaisle_last_reading")
		must.Hold(t, !strings.Contains(answer, "coldaisle_temperature_celsius{") && !strings.Contains(list, "online"),
			"%v later:\n%s\n%s", by, answer, list)
	}
	without := newSite(t)
	without.message(body("1", 20.5))
	answer = without.get("/metrics")
	must.Hold(t, !strings.Contains(answer, "coldaisle_"), "unasked:\n%s", answer)
}

// TestFlippedBits damages a reading in the outbox: the others are delivered, and
// the damage is counted and logged once, though it is read again and again.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	box := openBox(t, dir, time.Now)
	for i := range 3 {
		must.Do(t, box.AppendAll([]outbox.Record{keptRecord("n1", strconv.Itoa(i))})[0])
	}
	must.Do(t, box.Close())
	segment := must.Get(filepath.Glob(filepath.Join(dir, "*.seg")))(t)[0] // the only one
	content := must.Get(os.ReadFile(segment))(t)
	content[len(content)/2] ^= 1
	must.Do(t, os.WriteFile(segment, content, 0o600))
	box = openBox(t, dir, time.Now)
	s := newSiteWith(t, gateway.Config{ProbeEvery: time.Millisecond}, box)
	s.published.fail(errAway)
	s.run()
	for range 2 {
		before := s.published.tries()
		must.Eventually(t, "some attempts", func() bool { return s.published.tries() >= before+10 })
		s.pass(2 * time.Minute) // long enough to be logged once more
	}
	s.published.fail(nil)
	s.delivered(2)
	must.Contain(t, "health", s.health(), `"damaged":1`)
	lines := strings.Count(s.log.String(), "places of the outbox cannot be read")
	must.Hold(t, lines == 1, "%d lines about it, want 1:\n%s", lines, s.log.String())
}

// swapped is an outbox whose folder is replaced by others, with as many places that cannot be read.
type swapped struct {
	*outbox.Outbox

	damaged, asked atomic.Int64
}

func (o *swapped) Stats() outbox.Stats {
	o.asked.Add(1)
	return outbox.Stats{Damaged: int(o.damaged.Load())}
}

// TestDamageOfAnotherFolder puts a whole card in place of a damaged one, then a damaged one: each damage is logged, and
// nothing else is.
func TestDamageOfAnotherFolder(t *testing.T) {
	t.Parallel()
	box := &swapped{Outbox: openBox(t, t.TempDir(), time.Now)}
	s := newSiteWith(t, gateway.Config{ProbeEvery: time.Millisecond}, box)
	s.published.fail(errAway)
	s.message(body("1", 20))
	s.run()
	for _, damaged := range []int64{1, 0, 1} {
		box.damaged.Store(damaged)
		before := box.asked.Load()
		must.Eventually(t, "some looks", func() bool { return box.asked.Load() >= before+3 })
		s.pass(2 * time.Minute) // long enough to be logged once more
	}
	must.Equal(t, "lines, and those of one place", [2]int{2, 2},
		[2]int{strings.Count(s.log.String(), "places of the outbox cannot be read"), strings.Count(s.log.String(), `"damaged":1`)})
}

// TestChecksShowInHealth has checks of the gateway fail and recover: /health says so at their
// next turn, within 15 seconds after a repair, and of the name at once. Contract 8.12, 8.15.
func TestChecksShowInHealth(t *testing.T) {
	t.Parallel()
	box := openBox(t, t.TempDir(), time.Now)
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Pointer[map[string]string] // errors by check
		check := func(name string, fatal bool) gateway.Check {
			return gateway.Check{Name: name, Every: 10 * time.Minute, Fatal: fatal, Run: func(context.Context) error {
				if text := (*broken.Load())[name]; text != "" {
					return errors.New(text)
				}
				return nil
			}}
		}
		broken.Store(&map[string]string{})
		named := gateway.NameCheck(func() string { return (*broken.Load())["name"] })
		s := newSiteWith(t, gateway.Config{Checks: []gateway.Check{check("disk", false), check("address", true), named}}, box)
		stop := s.run()
		defer stop()
		for _, c := range []struct {
			broken      map[string]string
			after       time.Duration
			want, state string
		}{
			{nil, time.Second, `"status":"healthy"`, "0"},
			{map[string]string{"name": "taken"}, 0, `"status":"degraded","reasons":["name: taken"]`, "1"},
			{nil, 0, `"status":"healthy"`, "0"},
			{map[string]string{"disk": "full"}, 10 * time.Minute, `"status":"degraded","reasons":["disk: full"]`, "1"},
			{map[string]string{"disk": "full", "address": "deaf"}, 10 * time.Minute, `"status":"failing","reasons":["disk: full","address: deaf"]`, "2"},
			{nil, 15 * time.Second, `"status":"healthy"`, "0"},
		} {
			broken.Store(&c.broken)
			time.Sleep(c.after)
			synctest.Wait()
			must.Contain(t, "health", s.health(), c.want)
			must.Contain(t, "the metrics", s.get("/metrics"), "gateway_state "+c.state+"\n")
		}
		if log := s.log.String(); strings.Contains(log, `"check":"name"`) || !strings.Contains(log, `"check":"disk"`) {
			t.Errorf("the log should have the check of the disk, and not that of the name, which logs itself:\n%s", log)
		}
	})
}

// TestHealthIn1970 has a machine that begins in 1970: its outbox was not full a minute ago.
func TestHealthIn1970(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.pass(time.Unix(60, 0).Sub(s.clock()))
	must.Contain(t, "health", s.health(), `"status":"healthy"`)
}

// TestDiskThatHasRecovered has an append fail and nothing kept: once Pub/Sub takes readings again,
// /health does not say for ever that the disk fails. Contract 8.12.
func TestDiskThatHasRecovered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newSiteWith(t, gateway.Config{}, openBox(t, dir, time.Now))
		defer s.run()()
		must.Do(t, os.Rename(dir, dir+".away"))
		s.published.fail(errAway)
		s.message(body("1", 20))
		must.Contain(t, "health without a disk", s.health(), `"status":"failing"`)
		must.Do(t, os.Rename(dir+".away", dir))
		s.published.fail(nil)
		s.pass(time.Minute)
		time.Sleep(time.Minute) // from then on a reading tries Pub/Sub
		s.message(body("2", 20))
		must.Equal(t, "published", 1, len(s.published.all()))
		s.pass(time.Minute)
		time.Sleep(time.Minute)
		synctest.Wait()
		must.Contain(t, "health later", s.health(), `"status":"healthy"`)
	})
}

// TestIdleGatewayAsksPubSub finds that Pub/Sub is unavailable, and back, though no node sends anything.
func TestIdleGatewayAsksPubSub(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, gateway.Config{ProbeEvery: time.Millisecond, IdleProbe: 5 * time.Millisecond}, nil)
	s.published.fail(errAway)
	s.run()
	up := func(want bool) func() bool {
		return func() bool { return strings.Contains(s.health(), fmt.Sprintf(`"up":%t`, want)) }
	}
	must.Eventually(t, "the outage", up(false))
	s.published.fail(nil)
	must.Eventually(t, "its end", up(true))
	must.Equal(t, "published", "coldaisle.probe", s.published.last().Reading.NodeID)
	s.published.fail(errAway)
	must.Eventually(t, "the next outage", up(false))
}

// TestStandbyFindsTheEndOfAnOutage has a gateway that no node calls and that asks every five minutes: its
// health names the cause of an outage for no longer than a failing check's.
func TestStandbyFindsTheEndOfAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSiteWith(t, gateway.Config{IdleProbe: 5 * time.Minute}, nil)
		s.published.fail(errAway)
		s.run()
		synctest.Wait()
		must.Contain(t, "health", s.health(), errAway.Error())
		s.published.fail(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		must.Contain(t, "health a minute later", s.health(), `"status":"healthy"`)
	})
}

// TestStopWhileAsking stops the program while Pub/Sub is asked: a publish that fails with it says nothing of
// Pub/Sub, and one that has succeeded does.
func TestStopWhileAsking(t *testing.T) {
	t.Parallel()
	for _, answer := range []error{errAway, nil} {
		s := newSiteWith(t, gateway.Config{IdleProbe: time.Hour}, nil)
		asked := make(chan struct{})
		s.published.verdict = func(ctx context.Context, _ gateway.Message, _ bool) error {
			close(asked)
			<-ctx.Done()
			return answer
		}
		stop := s.run()
		<-asked
		stop()
		health := s.health()
		must.Contain(t, "health", health, fmt.Sprintf(`"up":%t`, answer == nil))
		must.Hold(t, !strings.Contains(health, errAway.Error()), "an outage that is none: %s", health)
	}
}

// readOnly is an outbox on a card that has gone read-only: its cursor cannot be written.
type readOnly struct{ *outbox.Outbox }

func (o readOnly) Consume(messages []outbox.Message) error {
	return errors.Join(o.Outbox.Consume(messages), syscall.EROFS)
}

// TestReadOnlyCardIsLoggedOnceAMinute drains a backlog whose cursor cannot be written:
// the log has one line a minute, with a count.
func TestReadOnlyCardIsLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	box := readOnly{openBox(t, t.TempDir(), time.Now)}
	s := newSiteWith(t, gateway.Config{ProbeEvery: time.Millisecond}, box)
	s.run()
	lines := func() []string {
		var found []string
		for line := range strings.Lines(s.log.String()) {
			if strings.Contains(line, "the cursor cannot be written") {
				found = append(found, line)
			}
		}
		return found
	}
	outage := func(first int) {
		s.published.fail(errAway)
		for i := range 5 {
			s.message(body(strconv.Itoa(first+i), 20))
		}
		s.published.fail(nil)
		must.Eventually(t, "the backlog", func() bool { return box.Stats().Pending == 0 })
	}
	outage(0)
	outage(5)
	must.Eventually(t, "the first line", func() bool { return len(lines()) > 0 })
	s.pass(2 * time.Minute)
	outage(10)
	must.Eventually(t, "the second line", func() bool { return len(lines()) > 1 })
	found := lines()
	if len(found) != 2 || !strings.Contains(found[0], `"count":1`) || strings.Contains(found[1], `"count":2}`) || !strings.Contains(found[1], `"count":`) {
		t.Errorf("of many failures the log has %q", found)
	}
}

// TestOutboxThatOpensLate restarts a gateway whose disk is mounted late. From when its
// outbox opens, what an earlier process kept is known again: a reading that is sent once
// more gets the time that it had, and windows are whole. Contract 8.8.
func TestOutboxThatOpensLate(t *testing.T) {
	t.Parallel()
	s := newRestartable(t)
	s.published.fail(errAway)
	const first = `{"id":"1","node_id":"n1","temperature":20,"humidity":40}`
	taken := s.clock()
	s.message(first)
	s.pass(10 * time.Second)
	s.message(`{"id":"2","node_id":"n1","temperature":21,"humidity":40}`)
	s.pass(10 * time.Second)
	s.stop()
	s.published.fail(nil)

	mounted := false
	late := outbox.NewLate(func() (*outbox.Outbox, error) {
		if !mounted {
			return nil, errAway
		}
		opened, err := outbox.Open(s.dir, outbox.Options{Retain: gateway.OutboxRetention, Clock: s.clock})
		if err == nil {
			s.gateway.Restore(opened)
		}
		return opened, err
	}, s.clock)
	s.open(gateway.Config{}, late)
	defer func() { _ = late.Close() }()
	s.message(`{"id":"3","node_id":"n1","temperature":22,"humidity":40}`)
	must.Equal(t, "window before the outbox is open", 0, s.published.last().Recent.Len())
	mounted = true
	s.pass(time.Minute)
	s.health() // asks it
	s.message(first)
	got := s.published.last()
	must.Hold(t, got.Reading.Time.Equal(taken), "sent once more it has the time %s, want %s", got.Reading.Time, taken)
	s.message(`{"id":"4","node_id":"n1","temperature":23,"humidity":40}`)
	must.Equal(t, "window afterwards", []float64{20, 21, 22}, s.published.last().Recent.Temperature)
}

// TestNewReadingsGoBeforeKeptOnes has Pub/Sub return, and a batch of the outbox hang
// in the publisher: a new reading is published meanwhile. Contract 8.8.
func TestNewReadingsGoBeforeKeptOnes(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, gateway.Config{ProbeEvery: time.Millisecond}, nil)
	s.published.fail(errAway)
	for i := range 4 {
		must.Equal(t, "answer while Pub/Sub is away", 500, s.message(body(fmt.Sprintf("kept%d", i), 20)))
		s.pass(30 * time.Second)
	}
	// The first of the outbox goes through: by it the gateway learns that Pub/Sub is back.
	held, release := make(chan struct{}), make(chan struct{})
	var number atomic.Int64
	s.published.judge(func(ctx context.Context, _ gateway.Message, kept bool) error {
		if !kept || number.Add(1) == 1 {
			return nil
		}
		if number.Load() == 2 {
			close(held)
		}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	})
	s.run()
	select {
	case <-held:
	case <-time.After(5 * time.Minute):
		t.Fatal("the outbox is not drained")
	}
	must.Equal(t, "a new reading is answered", 200, s.message(body("new", 21)))
	close(release)
	want := []string{"kept0 0s", "new 2m0s", "kept1 30s", "kept2 1m0s", "kept3 1m30s"}
	must.Equal(t, "messages", want, s.deliveredAfter(5))
}

// TestKeptReadingsGoInTheOrderOfAcceptance keeps a reading of now, then an older one that
// the node had kept itself: they go out in that order, each under its own time. Contract 8.8.
func TestKeptReadingsGoInTheOrderOfAcceptance(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, gateway.Config{ProbeEvery: time.Millisecond}, nil)
	s.published.fail(errAway)
	for _, sent := range []string{`"id":"now"`, `"id":"older","age_s":600`, `"id":"oldest","age_s":1200`} {
		must.Equal(t, sent+" is answered while Pub/Sub is away", 500, s.message(`{`+sent+`,"node_id":"n1","temperature":20,"humidity":40}`))
		s.pass(time.Second)
	}
	s.published.fail(nil)
	s.run()
	must.Equal(t, "messages", []string{"now 0s", "older -9m59s", "oldest -19m58s"}, s.deliveredAfter(3))
}

// deliveredAfter waits until so many readings were published, and returns the id of each and how long after
// the first it was taken.
func (s *site) deliveredAfter(n int) (found []string) {
	s.tb.Helper()
	all := s.delivered(n)
	for _, data := range all {
		found = append(found, fmt.Sprint(data.Reading.MessageID, " ", data.Reading.Time.Sub(all[0].Reading.Time)))
	}
	return found
}
