package gateway_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/clock"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// enrolledSite is a machine with an enrolled gateway whose clocks a test moves. truth
// is the real time, off what the system clock is ahead of it.
type enrolledSite struct {
	*site

	t         *testing.T
	dir       string
	key       ed25519.PrivateKey
	id        string
	corrected *clock.Clock
	aside     *outbox.Outbox
	room      int64 // bytes of aside; 0 for the usual
	stop      func()

	mu     sync.Mutex
	truth  time.Time
	off    time.Duration
	boot   byte
	uptime time.Duration
	away   bool
	sent   []sentMessage

	undated int // messages of the outbox that came before the time was known
}

// sentMessage is a message as Pub/Sub got it.
type sentMessage struct {
	wire.Data

	origin    wire.Origin
	published time.Time
}

func newEnrolledSite(t *testing.T, off time.Duration) *enrolledSite {
	t.Helper()
	e := &enrolledSite{
		t: t, dir: t.TempDir(), key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), id: "gw-a", off: off,
		truth: time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC), boot: 1, uptime: time.Minute,
	}
	e.start()
	return e
}

// start starts the gateway on the machine.
func (e *enrolledSite) start() {
	e.t.Helper()
	boot := clock.Boot{ID: [16]byte{e.boot}, Uptime: func() time.Duration { return e.read().uptime }}
	system := func() time.Time { m := e.read(); return m.truth.Add(m.off) }
	e.corrected = must.Get(clock.Open(filepath.Join(e.dir, "clock.json"), system, boot))(e.t)
	e.site = &site{tb: e.t, box: openBox(e.t, filepath.Join(e.dir, "outbox"), e.corrected.Now)}
	e.aside = must.Get(outbox.Open(filepath.Join(e.dir, "withheld"), outbox.Options{MaxBytes: e.room, Clock: e.corrected.Now}))(e.t)
	config := gateway.Config{ProbeEvery: time.Millisecond, Boot: boot, Withheld: e.aside, IdleProbe: time.Hour}
	if e.id != "" {
		config.Enrolment = e
	}
	e.gateway = gateway.New(config, &record{verdict: e.publish}, e.box, e.corrected.Now, logging.Discard())
	stop := e.run()
	e.stop = func() {
		stop()
		_ = e.box.Close()
		_ = e.aside.Close()
	}
	e.t.Cleanup(e.stop)
}

// reboot starts the machine again, after a time without power.
func (e *enrolledSite) reboot(off time.Duration) {
	e.t.Helper()
	e.stop()
	e.change(func() {
		e.boot++
		e.truth = e.truth.Add(10 * time.Minute)
		e.off, e.uptime = off, time.Second
	})
	e.start()
}

type clocks struct {
	truth       time.Time
	off, uptime time.Duration
}

func (e *enrolledSite) read() clocks {
	e.mu.Lock()
	defer e.mu.Unlock()
	return clocks{e.truth, e.off, e.uptime}
}

func (e *enrolledSite) change(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

func (e *enrolledSite) pass(d time.Duration) {
	e.change(func() { e.truth, e.uptime = e.truth.Add(d), e.uptime+d })
}

// hear has the API tell the time, on a way of some seconds.
func (e *enrolledSite) hear() {
	e.t.Helper()
	now := e.read()
	must.Do(e.t, e.corrected.Adjust(now.uptime-3*time.Second, now.uptime, now.truth.Add(-time.Second)))
}

// measure has a node send a reading that says when it was taken: it is published or kept.
func (e *enrolledSite) measure() (isKept bool) {
	e.t.Helper()
	e.pass(30 * time.Second)
	now := e.read().truth
	answer := e.answer(body(strconv.FormatInt(now.Unix(), 10), 21))
	if !strings.HasPrefix(answer, "200 ") {
		must.Equal(e.t, "answer", kept, answer)
	}
	return answer == kept
}

// ID, Sign, Time and Revoked are [gateway.Enrolment].
func (e *enrolledSite) ID() string { return e.id }

func (e *enrolledSite) Sign(at time.Time, age wire.Age, data []byte) map[string]string {
	return wire.SignData(e.key, e.id, at, age, data)
}

func (e *enrolledSite) Time(boot [16]byte, uptime time.Duration) (time.Time, bool) {
	return e.corrected.Time(boot, uptime)
}

func (*enrolledSite) Revoked() bool { return false }

// publish is the verdict on a message, blocked as an enrolment blocks it.
func (e *enrolledSite) publish(_ context.Context, m gateway.Message, kept bool) error {
	offset, known := e.corrected.Offset()
	e.mu.Lock()
	defer e.mu.Unlock()
	if kept && e.id != "" && !known {
		e.undated++
	}
	if e.away || (e.id != "" && (!known || offset.Abs() > clock.Limit)) {
		return errAway
	}
	origin, err := wire.ParseOrigin(m.Attributes)
	if err != nil {
		return errors.Join(err, gateway.ErrRefused)
	}
	data, err := wire.DecodeData(m.Data, e.truth)
	e.sent = append(e.sent, sentMessage{data, origin, e.truth})
	if err == nil && origin.Signed() {
		public, _ := e.key.Public().(ed25519.PublicKey)
		if !origin.Verify(public, m.Data) {
			err = errors.New("wrong signature")
		}
	}
	return err
}

// readings are those of nodes that were published.
func (e *enrolledSite) readings() []sentMessage {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []sentMessage
	for _, m := range e.sent {
		if m.Reading.NodeID == "n1" {
			found = append(found, m)
		}
	}
	return found
}

// TestClockFaults shows contract 8.20: whatever the system clock does, every reading
// ends within 2 minutes of its true time, and detection would take it. While the clock is
// more than 5 minutes off, nothing is published, and nodes are answered as in an outage.
func TestClockFaults(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	jump := func(off time.Duration) func(*enrolledSite) {
		return func(e *enrolledSite) {
			e.change(func() { e.off = off })
			e.measure()
		}
	}
	for name, c := range map[string]struct {
		off   time.Duration
		fault func(e *enrolledSite)
		late  bool // the time becomes known behind the fault
	}{
		"a day slow": {off: -day},
		"a day fast": {off: day},
		"1970 at boot, the API first heard when the clock is set": {
			off: -time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC).Sub(time.Unix(0, 0)), late: true,
		},
		"four minutes slow":                {off: -4 * time.Minute},
		"a jump forward in an outage":      {fault: jump(3 * time.Hour)},
		"a jump back in an outage":         {fault: jump(-3 * time.Hour)},
		"a jump before the time was known": {late: true, fault: jump(-20 * time.Minute)},
		"suspended": {fault: func(e *enrolledSite) {
			e.pass(8 * time.Hour) // by the boot clock; no timer of the process has gone on
			e.measure()
		}},
		"the process started again": {off: -day, fault: func(e *enrolledSite) {
			e.stop()
			e.start()
			e.measure()
		}},
		"the machine started again with 1970": {fault: func(e *enrolledSite) {
			e.reboot(-e.read().truth.Sub(time.Unix(0, 0)))
			e.measure()
			e.hear()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnrolledSite(t, c.off)
			e.change(func() { e.away = true })
			e.measure()
			if !c.late {
				e.hear()
			}
			e.measure()
			if c.fault != nil {
				c.fault(e)
			}
			if c.off.Abs() > clock.Limit {
				e.change(func() { e.away = false })
			}
			must.Equal(t, "a reading is kept", true, e.measure())
			must.Equal(t, "readings are published", 0, len(e.readings()))
			e.change(func() { e.off = 0 })
			if c.late {
				e.hear()
			}
			e.change(func() { e.away = false })
			e.measure()
			want := 4
			if c.fault != nil {
				want = 5
			}
			must.Eventually(t, "every reading", func() bool { return len(e.readings()) == want })
			must.Equal(t, "messages of the outbox before the time was known", 0, e.undated)
			for _, m := range e.readings() {
				var taken int64
				must.Get(fmt.Sscan(m.Reading.MessageID, &taken))(t)
				off := m.Reading.Time.Sub(time.Unix(taken, 0))
				must.Hold(t, off.Abs() <= 2*time.Minute, "a reading is off by %s", off)
				must.Hold(t, m.origin.Signed() && m.origin.Age.Known, "a reading is not signed with its age")
				if off := m.published.Sub(m.Reading.Time.Add(m.origin.Age.Duration)); off.Abs() > reading.MaxAhead {
					t.Errorf("time and age of a reading are %s from its publication: it would be refused", off)
				}
				for i, age := range m.Recent.Age {
					must.Hold(t, i == 0 || age < m.Recent.Age[i-1], "the window of a reading has the ages %v", m.Recent.Age)
				}
			}
		})
	}
}

// TestOtherEnrolments shows contract 8.22.
func TestOtherEnrolments(t *testing.T) {
	t.Parallel()
	e := newEnrolledSite(t, 0)
	e.change(func() { e.away = true })
	for _, id := range []string{"", "gw-a", "gw-b"} {
		e.stop()
		e.id = id
		e.start()
		e.hear()
		e.measure()
		e.measure()
	}
	e.change(func() { e.away = false })
	must.Eventually(t, "the readings of the open gateway and of this enrolment", func() bool { return len(e.readings()) == 4 })
	for i, m := range e.readings() {
		must.Equal(t, fmt.Sprintf("reading %d is signed by", i), []string{"", "", "gw-b", "gw-b"}[i], m.origin.GatewayID)
		must.Equal(t, fmt.Sprintf("readings in the window of reading %d", i), i%2, m.Recent.Len())
	}
	e.measure()
	must.Equal(t, "readings in the window of a live reading", 2, e.readings()[4].Recent.Len())
	must.Equal(t, "readings of the other enrolment are kept", 2, e.aside.Stats().Pending)
	must.Contain(t, "health", e.health(), "withheld: 2 readings")
	must.Contain(t, "the metrics", e.get("/metrics"), "gateway_withheld_readings 2")

	// An open gateway publishes none of an enrolment's.
	e.change(func() { e.away = true })
	e.measure()
	e.stop()
	e.id = ""
	e.start()
	e.change(func() { e.away = false })
	must.Eventually(t, "the reading put aside", func() bool { return e.aside.Stats().Pending == 3 })
	must.Equal(t, "readings that an open gateway leaves published", 5, len(e.readings()))
}

// TestNoRoomToWithhold has more readings of another enrolment than fit: those of this one do not wait for them.
func TestNoRoomToWithhold(t *testing.T) {
	t.Parallel()
	e := newEnrolledSite(t, 0)
	e.change(func() { e.away = true })
	e.measure()
	e.stop()
	e.id, e.room = "gw-b", 1
	e.start()
	e.hear()
	e.measure()
	e.change(func() { e.away = false })
	must.Eventually(t, "the reading of this enrolment", func() bool { return len(e.readings()) == 1 })
	must.Contain(t, "health", e.health(), `"dropped":1`, "it has no room, readings are lost")
}

// TestDiskOfTheWithheldFails has a reading that may not be published and cannot be withheld just now: it waits, and is not lost.
func TestDiskOfTheWithheldFails(t *testing.T) {
	t.Parallel()
	aside, box := openBox(t, t.TempDir(), time.Now), openBox(t, t.TempDir(), time.Now)
	must.Do(t, aside.Close())
	r := reading.Reading{NodeID: "n1", MessageID: "1", Time: time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC), Temperature: 20, Humidity: 40}
	must.Do(t, box.AppendAll([]outbox.Record{{Reading: r, Enrolment: "gw-a"}})[0])
	s := newSiteWith(t, gateway.Config{Withheld: aside, ProbeEvery: time.Millisecond}, box)
	stop := s.run()
	must.Eventually(t, "an attempt", func() bool { return strings.Contains(s.log.String(), "cannot be withheld") })
	stop()
	must.Contain(t, "the log", s.log.String(), `"lost":false`)
	must.Contain(t, "health", s.health(), `"readings":1`, `"dropped":0`)
}

// TestUnknownTime shows contract 8.22: no reading is stored under a time that it may not be of.
func TestUnknownTime(t *testing.T) {
	t.Parallel()
	e := newEnrolledSite(t, -24*time.Hour)
	e.change(func() { e.away = true })
	e.measure()
	e.reboot(0)
	e.hear()
	e.change(func() { e.away = false })
	e.measure()
	must.Eventually(t, "the reading of this boot", func() bool { return len(e.readings()) == 1 })
	must.Eventually(t, "that of the boot before", func() bool { return e.aside.Stats().Pending == 1 })
}

// TestClockInThe1970s has a machine without a battery start without Pub/Sub and without the
// time: its readings are kept, and get their times when the clock is set in the same boot. In
// another boot nobody knows them: they are withheld.
func TestClockInThe1970s(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"the clock is set": false, "the machine is started again": true} {
		e := newEnrolledSite(t, 0)
		e.stop()
		e.id, e.away, e.off = "", true, time.Unix(60, 0).Sub(e.truth)
		e.start()
		must.Equal(t, name+": both are kept", [2]bool{true, true}, [2]bool{e.measure(), e.measure()})
		if again {
			e.reboot(0)
		}
		e.change(func() { e.off, e.away = 0, false })
		must.Eventually(t, "an empty outbox", func() bool { return e.box.Stats().Pending == 0 })
		var got []string
		for _, m := range e.readings() {
			got = append(got, fmt.Sprint(m.Reading.Time.Unix(), " with ", m.Recent.Len()))
		}
		want, withheld := []string{"1795143630 with 0", "1795143660 with 1"}, 0
		if again {
			want, withheld = nil, 2 // nobody knows their times
		}
		must.Equal(t, name+": published", want, got)
		must.Equal(t, name+": withheld", withheld, e.aside.Stats().Pending)
	}
}

// TestReport holds what an enrolled gateway reports of its nodes.
func TestReport(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.send(http.MethodPost, "/api/v1/register", `{"node_id":"n0","ip_addr":"192.168.7.8"}`)
	s.message(body("a1", 20))
	read := s.clock()
	s.pass(time.Minute)
	s.send(http.MethodPost, "/api/v1/heartbeat", `{"node_id":"n2"}`)
	nodes, kept := s.gateway.Report()
	if kept != 0 || len(nodes) != 2 || nodes[0].NodeID != "n2" || !nodes[0].LastHeartbeat.Equal(s.clock()) || !nodes[0].LastReading.IsZero() ||
		nodes[1].NodeID != "n1" || !nodes[1].LastReading.Equal(read) {
		t.Errorf("reported %+v, %d kept", nodes, kept)
	}
}
