package redeliverytest

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/edge-gateway/clock"
	"coldaisle.dev/edge-gateway/enrolment"
	"coldaisle.dev/edge-gateway/enrolment/enrolmenttest"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/functions/storealert"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

// channels is the pipeline over one database, with two customers who have an enrolled gateway each, and a third who has
// none and holds the node id in the open channel. The first has a gateway that is revoked, too.
type channels struct {
	pool      *pgxpool.Pool
	store     pgtest.Stores
	readings  *pgreadings.Store
	ingest    *ingest.Ingest
	detect    *detect.Detect
	customers [3]int64
	gateways  [3]enrolledGateway // the last is revoked
}

type enrolledGateway struct {
	id  string
	key ed25519.PrivateKey
}

const sharedNode = "rack-1"

// storeAlerts stores the alerts of detect as storealert does, without a topic between.
type storeAlerts struct{ step *storealert.StoreAlert }

func (s storeAlerts) Publish(ctx context.Context, e alert.Event) error {
	data, err := wire.EncodeAlert(e)
	if err != nil {
		return err
	}
	return s.step.Handle(ctx, push.Message{ID: "1", Data: data, PublishTime: time.Now()})
}

func newChannels(tb testing.TB) *channels {
	tb.Helper()
	pool := pgtest.New(tb)
	c := &channels{pool: pool, store: pgtest.NewStores(pool)}
	c.readings = pgreadings.New(c.store.DB, nil, time.Now)
	sensors := sensorcache.New(c.store, coalesce.Wait{}, time.Now)
	from := origin.New(c.store, time.Now, origin.Options{})
	alerts := storeAlerts{storealert.New(c.store, time.Now, logging.Discard(), nil)}
	c.ingest = ingest.New(from, c.store, c.readings, coalesce.Wait{}, time.Now, logging.Discard(), nil)
	observer := detect.NewAnomalyDetector(detect.NoModels{}, c.store, detect.Questions, time.Now, logging.Discard())
	c.detect = detect.New(from, sensors, alerts, c.store, observer, alert.Defaults(), logging.Discard(), nil)
	var rooms [3]int64
	for i := range c.customers {
		c.customers[i], rooms[i] = c.store.Owner(tb, fmt.Sprint("customer", i))
	}
	for i := range c.gateways {
		c.gateways[i] = c.enrol(tb, c.customers[i%2])
	}
	must.Do(tb, c.store.RevokeGateway(tb.Context(), c.customers[0], c.gateways[2].id))
	for _, i := range []int{2, 0, 1} { // the third holds the id in the open channel
		c.store.AddSensors(tb, c.customers[i], rooms[i], sharedNode)
	}
	return c
}

func (c *channels) enrol(tb testing.TB, customer int64) enrolledGateway {
	tb.Helper()
	created, code, err := c.store.CreateGateway(tb.Context(), customer, 0, "site")
	must.Do(tb, err)
	public, private, err := ed25519.GenerateKey(nil)
	must.Do(tb, err)
	must.Get(c.store.EnrolGateway(tb.Context(), code, public))(tb)
	return enrolledGateway{created.ID, private}
}

// message is what a gateway publishes; without one, an open gateway.
func (c *channels) message(tb testing.TB, g *enrolledGateway, r reading.Reading, age time.Duration, published time.Time) push.Message {
	tb.Helper()
	data := must.Get(wire.EncodeData(wire.Data{Reading: r}))(tb)
	m := push.Message{ID: r.MessageID, Data: data, PublishTime: published, Attributes: map[string]string{wire.NodeIDAttribute: r.NodeID}}
	if g != nil {
		maps.Copy(m.Attributes, wire.SignData(g.key, g.id, r.Time, wire.Age{Duration: age, Known: true}, data))
	}
	return m
}

// handle gives a message to both functions and returns what each answers.
func (c *channels) handle(ctx context.Context, m push.Message) (ingested, detected error) {
	return c.ingest.Handle(ctx, m), c.detect.Handle(ctx, m)
}

// fuzzedMessages is how many messages are fuzzed: 5,000, at night 20,000, or
// CHANNEL_MESSAGES. A million take some minutes:
//
//	CHANNEL_MESSAGES=1000000 go test -v -run TestFuzzedMessages -timeout 60m ./run/local/redeliverytest
func fuzzedMessages(t *testing.T) int {
	t.Helper()
	text := os.Getenv("CHANNEL_MESSAGES")
	if text == "" && !tooltest.Nightly() {
		return 5_000
	} else if text == "" {
		return 20_000
	}
	return must.Get(strconv.Atoi(text))(t)
}

// fuzzed is what may be stored of a fuzzed message.
type fuzzed struct {
	channel     reading.Channel
	at          time.Time
	temperature float64
}

// hotTemperature is above every threshold.
const hotTemperature = 60

// TestFuzzedMessages shows contract 10.4. Each message is one that a gateway signed, and then tampered with. Whatever
// ingest and detect store is of the customer whose gateway sent that very reading, under the time that it was taken. A
// message that has lost its signature is one of the open channel, and of no gateway's customer.
func TestFuzzedMessages(t *testing.T) {
	t.Parallel()
	c := newChannels(t)
	n := fuzzedMessages(t)
	now := reading.TruncateTime(time.Now())
	owners := map[reading.Channel]int64{reading.Open: c.customers[2]} // who sees a channel
	for _, customer := range c.customers[:2] {
		owners[reading.Channel(customer)] = customer
	}
	var mu sync.Mutex
	sent := map[string]fuzzed{} // by message id: what may be stored, and as what
	signed, open, alerts := 0, 0, 0
	work := make(chan int)
	var group sync.WaitGroup
	for worker := range 32 {
		group.Go(func() {
			chance := rand.New(rand.NewPCG(uint64(worker), 15))
			for i := range work {
				owner, kind := chance.IntN(2), tampering(chance.IntN(int(tamperings)))
				g := c.gateways[owner]
				age := time.Duration(chance.IntN(2)*chance.IntN(86_400_000)) * time.Millisecond
				r := reading.Reading{NodeID: sharedNode, MessageID: strconv.Itoa(i), Time: now.Add(-age), Temperature: float64(chance.IntN(40)), Humidity: 40}
				// Storing an alert takes longer than all else: of those that may raise one, few do.
				if kind > stripped || i%100 == 0 {
					r.Temperature += hotTemperature
				}
				m := c.message(t, &g, r, age, now)
				tamper(t, kind, chance, c, owner, r, age, &m)
				ingested, detected := c.handle(t.Context(), m)
				for function, err := range map[string]error{"ingest": ingested, "detect": detected} {
					if kind <= stripped && err != nil || kind > stripped && !push.IsPermanent(err) {
						t.Errorf("%s answers %v to message %d, tampered with in way %d: %v %s", function, err, i, kind, m.Attributes, m.Data)
					}
				}
				if kind > stripped {
					continue
				}
				truth := fuzzed{reading.Channel(c.customers[owner]), r.Time, r.Temperature}
				mu.Lock()
				if kind == stripped {
					truth.channel = reading.Open
					open++
				} else {
					signed++
				}
				// The hold in the open channel began a moment before now.
				if truth.temperature >= hotTemperature && (kind == untouched || age == 0) {
					alerts++
				}
				sent[r.MessageID] = truth
				mu.Unlock()
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	group.Wait()
	t.Logf("of %d messages %d were taken as signed and %d as open, the others refused", n, signed, open)
	must.Hold(t, signed >= n/20 && open >= n/20, "these are too few")
	for what, query := range map[string]string{
		"reading": `SELECT customer_id, message_id, timestamp, temperature, 0 FROM sensor_data.readings`,
		"alert":   `SELECT channel, message_id, timestamp, value, customer_id FROM alerts`,
		"state":   `SELECT channel, message_id, timestamp, temperature, 0 FROM node_state`,
	} {
		rows := must.Get(c.pool.Query(t.Context(), query))(t)
		var got fuzzed
		var message string
		var customer int64
		stored, err := pgx.ForEachRow(rows, []any{&got.channel, &message, &got.at, &got.temperature, &customer}, func() error {
			got.at = got.at.UTC()
			if want := sent[message]; got != want || customer != 0 && customer != owners[got.channel] {
				t.Errorf("the %s of %s is stored for customer %d as %+v, and was sent as %+v", what, message, customer, got, want)
			}
			return nil
		})
		if want := map[string]int{"reading": signed + open, "alert": alerts, "state": 3}[what]; err != nil || int(stored.RowsAffected()) != want {
			t.Errorf("%d of kind %s are stored, want %d, %v", stored.RowsAffected(), what, want, err)
		}
	}
}

// tampering is what an attacker does to a signed message.
type tampering int

const (
	untouched tampering = iota
	stripped            // of its signature; what follows is refused
	alteredByte
	alteredValue
	alteredTime
	replayedLater
	otherID
	otherKey
	revokedGateway
	forgedAge
	withoutAge
	brokenSignature
	halfStripped
	tamperings
)

func tamper(t *testing.T, kind tampering, chance *rand.Rand, c *channels, owner int, r reading.Reading, age time.Duration, m *push.Message) {
	t.Helper()
	other := c.gateways[1-owner]
	resigned := func(g enrolledGateway) { m.Attributes = c.message(t, &g, r, age, m.PublishTime).Attributes }
	switch kind {
	case untouched, tamperings:
	case stripped:
		delete(m.Attributes, wire.GatewayIDAttribute)
		delete(m.Attributes, wire.SignatureAttribute)
	case alteredByte:
		m.Data = slices.Clone(m.Data)
		m.Data[chance.IntN(len(m.Data))] ^= byte(1 + chance.IntN(255))
	case alteredValue: // well formed
		r.Temperature++
		m.Data = c.message(t, nil, r, 0, m.PublishTime).Data
	case alteredTime: // well formed
		r.Time = r.Time.Add(time.Duration(1+chance.IntN(1000)) * time.Millisecond)
		m.Data = c.message(t, nil, r, 0, m.PublishTime).Data
	case replayedLater: // by minutes to a day
		m.PublishTime = m.PublishTime.Add(reading.MaxAhead + time.Duration(1+chance.IntN(86_400_000))*time.Millisecond)
	case otherID:
		m.Attributes[wire.GatewayIDAttribute] = other.id
	case otherKey: // one's own, or a copied one, under another gateway's id
		resigned(enrolledGateway{other.id, c.gateways[owner].key})
	case revokedGateway:
		resigned(c.gateways[2])
	case forgedAge: // that would let it pass later
		later := time.Duration(1+chance.IntN(86_400_000)) * time.Millisecond
		m.PublishTime = m.PublishTime.Add(later)
		m.Attributes[wire.AgeAttribute] = strconv.FormatInt((age + later).Milliseconds(), 10)
	case withoutAge:
		delete(m.Attributes, wire.AgeAttribute)
	case brokenSignature:
		signature := []byte(m.Attributes[wire.SignatureAttribute])
		signature[chance.IntN(80)] ^= byte(1 + chance.IntN(15))
		m.Attributes[wire.SignatureAttribute] = string(signature)
	case halfStripped: // of its signature or of the gateway's id alone
		delete(m.Attributes, []string{wire.GatewayIDAttribute, wire.SignatureAttribute}[chance.IntN(2)])
	}
}

// site is an enrolled gateway on a machine whose clock is wrong, in front of ingest and
// detect. The time is the test's: only what the gateway waits for is real.
type site struct {
	t        *testing.T
	channels *channels
	api      *enrolmenttest.API
	folder   string
	id       *enrolment.Identity

	mu     sync.Mutex
	truth  time.Time
	off    time.Duration // what the system clock is ahead
	booted time.Time
	began  time.Time // when the gateway was started
	boot   byte
	away   bool // Pub/Sub

	gateway *gateway.Gateway
	stop    func()
	sent    map[string]time.Time // by message id: when it was taken
}

func (s *site) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *site) now() (truth time.Time) {
	s.locked(func() { truth = s.truth })
	return truth
}

func (s *site) system() (system time.Time) {
	s.locked(func() { system = s.truth.Add(s.off) })
	return system
}

// pass lets time pass, as it does too while the machine is suspended.
func (s *site) pass(d time.Duration) { s.locked(func() { s.truth = s.truth.Add(d) }) }

// setClock sets how far the system clock is ahead of the truth.
func (s *site) setClock(off time.Duration) { s.locked(func() { s.off = off }) }

func (s *site) outage(away bool) { s.locked(func() { s.away = away }) }

// reboot ends the gateway and the machine's boot; another boot begins.
func (s *site) reboot() {
	s.stop()
	s.locked(func() { s.boot, s.booted = s.boot+1, s.truth })
}

// start runs the gateway; when the API does not answer, it knows no time but the system's.
func (s *site) start(answers bool) {
	s.t.Helper()
	boot := clock.Boot{ID: [16]byte{s.boot}, Uptime: func() (up time.Duration) {
		s.locked(func() { up = s.truth.Sub(s.booted) })
		return up
	}}
	s.locked(func() { s.began = s.truth })
	corrected := must.Get(clock.Open(filepath.Join(s.folder, "clock.json"), s.system, boot))(s.t)
	session := enrolment.NewSession(s.id, corrected, s.system, "test", false, logging.Discard())
	open := func(name string) *outbox.Outbox {
		return must.Get(outbox.Open(filepath.Join(s.folder, name), outbox.Options{Retain: gateway.OutboxRetention, Clock: corrected.Now}))(s.t)
	}
	kept, withheld := open("outbox"), open("withheld")
	s.gateway = gateway.New(gateway.Config{
		Enrolment: session, Withheld: withheld, Boot: boot, ProbeEvery: 5 * time.Millisecond,
	}, gateway.PublishFunc(sitePublisher{s, session}.publish), kept, corrected.Now, logging.Discard())
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.gateway.Run(ctx) })
	if answers {
		running.Go(func() { _ = session.Run(ctx, func() enrolment.Report { return enrolment.Report{Role: "active"} }) })
		must.Eventually(s.t, "the time from the API", func() bool { _, known := corrected.Offset(); return known })
	}
	s.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		must.Fail(s.t, "closed", errors.Join(kept.Close(), withheld.Close()), nil) // FailNow would be a panic in a OnceFunc
	})
	s.t.Cleanup(s.stop)
}

// mend ends all faults and waits until what was kept is published. Meanwhile the time
// stands still: no message is on its way for the minutes that a test lets pass in no time.
func (s *site) mend() {
	s.setClock(0)
	s.outage(false)
	must.Eventually(s.t, "an empty outbox", func() bool { _, kept := s.gateway.Report(); return kept == 0 })
}

// take has a node send hot readings, one a minute. The gateway answers that it has each.
func (s *site) take(n int) {
	s.t.Helper()
	for range n {
		s.pass(time.Minute)
		id := fmt.Sprintf("m%d", len(s.sent))
		s.sent[id] = s.now()
		body := fmt.Sprintf(`{"node_id":%q,"message_id":%q,"temperature":60,"humidity":40}`, sharedNode, id)
		request := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "/api/v1/message", strings.NewReader(body))
		answer := httptest.NewRecorder()
		s.gateway.ServeHTTP(answer, request)
		var said struct {
			Kept bool `json:"kept"`
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &said); err != nil || answer.Code != http.StatusOK && !said.Kept {
			s.t.Fatalf("reading %s is answered %d %s", id, answer.Code, answer.Body)
		}
	}
}

// sitePublisher publishes as the gateway's program does, by leave of the session; the messages go to ingest and detect.
type sitePublisher struct {
	*site

	session *enrolment.Session
}

// overtaken is whether the test let minutes pass while a message was on its way: on a machine, the
// time for its publish would be over. A time that the gateway has not had since its start is wrong.
func (s *site) overtaken(m push.Message) bool {
	origin, err := wire.ParseOrigin(m.Attributes)
	made := time.Time{}
	_, _, wrong := wire.DecodeReading(m.Data, func(stamped time.Time) (time.Time, error) {
		made = stamped.Add(origin.Age.Duration)
		return stamped, nil
	})
	return err == nil && wrong == nil && !made.Before(s.began) && m.PublishTime.Sub(made) > reading.MaxAhead
}

func (p sitePublisher) publish(ctx context.Context, m gateway.Message) error {
	if err := p.session.Ready(); err != nil {
		return err
	}
	var away bool
	p.locked(func() { away = p.away })
	if away {
		return errors.New("Pub/Sub is away")
	}
	sent := push.Message{ID: "1", Data: m.Data, Attributes: m.Attributes, PublishTime: p.now()}
	if p.overtaken(sent) {
		return context.DeadlineExceeded
	}
	ingested, detected := p.channels.handle(ctx, sent)
	err := errors.Join(ingested, detected)
	must.Hold(p.t, err == nil, "refused: %v", err)
	return nil
}

// TestReadingsThroughClockFaults runs the gateway's own clock, session and outbox in front of ingest
// and detect, on a machine whose clock fails. Every reading is stored within two minutes
// of when it was taken, and raises its alert. Contract 8.20, 10.4.
func TestReadingsThroughClockFaults(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	// wrongAtBoot has a clock that is wrong from the boot on, first without the API, then with it, until somebody sets it.
	wrongAtBoot := func(off func(*site) time.Duration) func(*site) {
		return func(s *site) {
			s.setClock(off(s))
			s.start(false)
			s.take(5)
			s.stop() // the program; the machine runs on
			s.start(true)
			s.take(5)
			s.pass(3 * time.Hour)
			s.take(5)
			s.mend()
		}
	}
	for name, fault := range map[string]func(*site){
		"a day slow":   wrongAtBoot(func(*site) time.Duration { return -day }),
		"a day fast":   wrongAtBoot(func(*site) time.Duration { return day }),
		"1970 at boot": wrongAtBoot(func(s *site) time.Duration { return time.Unix(0, 0).Sub(s.now()) }),
		"a jump in the middle of an outage": func(s *site) {
			s.start(true)
			s.take(3)
			s.outage(true)
			s.take(5)
			s.setClock(7 * time.Hour)
			s.take(5)
			s.setClock(-day)
			s.take(5)
			s.stop()
			s.start(true) // the program starts again with a wrong clock
			s.take(5)
			s.mend()
		},
		"a boot into 1970 in the middle of an outage": func(s *site) {
			s.start(true)
			s.outage(true)
			s.take(5)
			s.pass(2 * time.Hour)
			s.reboot()
			s.setClock(time.Unix(0, 0).Sub(s.now()))
			s.start(true)
			s.take(5)
			s.mend()
		},
		"a suspension in an outage": func(s *site) {
			s.start(true)
			s.take(3)
			s.outage(true)
			s.take(5)
			s.pass(9 * time.Hour) // CLOCK_BOOTTIME goes on
			s.take(5)
			s.setClock(-9 * time.Hour) // and the system clock wakes where it was
			s.take(5)
			s.mend()
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			c := newChannels(t)
			s := &site{t: t, channels: c, api: enrolmenttest.Start(t), folder: t.TempDir(), sent: map[string]time.Time{}}
			s.truth = reading.TruncateTime(time.Now())
			s.booted = s.truth.Add(-time.Minute)
			s.api.Set(func(a *enrolmenttest.API) { a.Time = s.now })
			accept := func(enrolment.Offer) bool { return true }
			s.id = must.Get(enrolment.Enrol(t.Context(), s.folder, enrolmenttest.Code, s.api.URL, accept))(t)
			must.Get(c.pool.Exec(t.Context(), `UPDATE gateways SET id = $1, public_key = $2 WHERE id = $3`,
				enrolmenttest.ID, []byte(s.api.Key()), c.gateways[0].id))(t)
			fault(s)
			s.take(2)
			s.mend()
			s.stop()
			for what, query := range map[string]string{
				"readings": `SELECT message_id, timestamp FROM sensor_data.readings WHERE customer_id = $1`,
				"alerts":   `SELECT message_id, timestamp FROM alerts WHERE channel = $1 AND customer_id = $1`,
			} {
				rows := must.Get(c.pool.Query(t.Context(), query, c.customers[0]))(t)
				stored := map[string]bool{}
				var id string
				var at time.Time
				_, err := pgx.ForEachRow(rows, []any{&id, &at}, func() error {
					if off := at.Sub(s.sent[id]); off.Abs() > 2*time.Minute || stored[id] {
						t.Errorf("%s: %s is stored %s from when it was taken (stored before: %t)", what, id, off, stored[id])
					}
					stored[id] = true
					return nil
				})
				must.Hold(t, err == nil && len(stored) == len(s.sent),
					"%d of %d %s are stored, %v", len(stored), len(s.sent), what, err)
			}
		})
	}
}
