package redeliverytest

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/functions/storealert"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/sensorcache"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/wire"
)

// channels is the pipeline over one database, with two customers who have an
// enrolled gateway each, and a third who has none and holds the node id in the open
// channel. The first has a gateway that is revoked, too.
type channels struct {
	pool      *pgxpool.Pool
	store     *store.Store
	readings  *pgreadings.Store
	ingest    *ingest.Ingest
	detect    *detect.Detect
	customers [3]int64
	gateways  [3]gateway // the last is revoked
}

type gateway struct {
	id  string
	key ed25519.PrivateKey
}

const sharedNode = "rack-1"

// storeAlerts stores the alerts of detect as storealert does, without a topic between.
type storeAlerts struct{ step *storealert.StoreAlert }

func (s storeAlerts) Publish(ctx context.Context, a wire.Alert) error {
	data, err := wire.EncodeAlert(a)
	if err != nil {
		return err
	}
	return s.step.Handle(ctx, push.Message{ID: "1", Data: data, PublishTime: time.Now()})
}

func newChannels(tb testing.TB) *channels {
	tb.Helper()
	pool := pgtest.New(tb)
	c := &channels{pool: pool, store: store.New(pool), readings: pgreadings.New(pool, time.Now)}
	sensors := sensorcache.New(c.store, time.Now)
	from := origin.New(c.store, time.Now, origin.Options{})
	alerts := storeAlerts{storealert.New(c.store, alert.Defaults(), logging.Discard(), nil)}
	c.ingest = ingest.New(from, ingest.NewStates(c.store), c.readings, sensors, logging.Discard(), nil)
	c.detect = detect.New(from, sensors, alerts, detect.NewAnomalyDetector(detect.NoModels{}, c.store, 1, logging.Discard(), nil), alert.Defaults(), logging.Discard(), nil)
	for i := range c.customers {
		name := fmt.Sprint("customer", i)
		customer, err := c.store.CreateCustomer(tb.Context(), store.NewCustomer{Email: name + "@example.com", Username: name, PasswordHash: "x"})
		if err != nil {
			tb.Fatal(err)
		}
		c.customers[i] = customer.ID
	}
	for i := range c.gateways {
		c.gateways[i] = c.enrol(tb, c.customers[i%2])
	}
	if err := c.store.RevokeGateway(tb.Context(), c.customers[0], c.gateways[2].id); err != nil {
		tb.Fatal(err)
	}
	for _, i := range []int{2, 0, 1} { // the third holds the id in the open channel
		room, err := c.store.CreateRoom(tb.Context(), c.customers[i], "room")
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := c.store.CreateSensor(tb.Context(), c.customers[i], store.NewSensor{ID: sharedNode, Name: "n", Type: "T", RoomID: room.ID}); err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

func (c *channels) enrol(tb testing.TB, customer int64) gateway {
	tb.Helper()
	created, code, err := c.store.CreateGateway(tb.Context(), customer, "site")
	if err != nil {
		tb.Fatal(err)
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := c.store.EnrolGateway(tb.Context(), code, public); err != nil {
		tb.Fatal(err)
	}
	return gateway{created.ID, private}
}

// message is what a gateway publishes; without one, an open gateway.
func (c *channels) message(tb testing.TB, g *gateway, r reading.Reading, age time.Duration, published time.Time) push.Message {
	tb.Helper()
	data, err := wire.EncodeData(wire.Data{Reading: r})
	if err != nil {
		tb.Fatal(err)
	}
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

// seen is everything that a customer sees of the node, by message id.
func (c *channels) seen(t *testing.T, customer int64) map[string][]string {
	t.Helper()
	now := time.Now()
	seen := map[string][]string{}
	add := func(kind, message string) { seen[kind] = append(seen[kind], message) }
	node, err := c.store.VisibleNode(t.Context(), customer, sharedNode)
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range c.readings.Range(t.Context(), node, now.Add(-48*time.Hour), now.Add(time.Hour)) {
		if err != nil {
			t.Fatal(err)
		}
		add("reading", r.MessageID)
	}
	rows, err := c.pool.Query(t.Context(), `SELECT message_id FROM alerts WHERE customer_id = $1 ORDER BY timestamp`, customer)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var message string
		if err := rows.Scan(&message); err != nil {
			t.Fatal(err)
		}
		add("alert", message)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	predictions, err := c.store.Predictions(t.Context(), customer, store.PredictionFilter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range predictions {
		add("prediction", strconv.FormatFloat(*p.ActualTemperature, 'f', -1, 64))
	}
	return seen
}

// TestOneNodeIDUnderThreeCustomers shows contract 4.8, 6.6, 10.4: two enrolled
// gateways and an open one send hot readings of one node id at the same moment.
func TestOneNodeIDUnderThreeCustomers(t *testing.T) {
	t.Parallel()
	c := newChannels(t)
	now := reading.TruncateTime(time.Now())
	for i, name := range []string{"first", "second", "third"} {
		var g *gateway
		if i < 2 {
			g = &c.gateways[i]
		}
		r := reading.Reading{NodeID: sharedNode, MessageID: name, Time: now, Temperature: 60 + float64(i), Humidity: 40}
		for range 2 { // delivered twice
			if ingested, detected := c.handle(t.Context(), c.message(t, g, r, 0, now)); ingested != nil || detected != nil {
				t.Fatal(ingested, detected)
			}
		}
		// What was kept for a day, by the enrolled ones only: the hold is not as old.
		if g != nil {
			r.MessageID, r.Time, r.Temperature = name+" kept", now.Add(-5*time.Minute), 40
			if ingested, detected := c.handle(t.Context(), c.message(t, g, r, 5*time.Minute, now)); ingested != nil || detected != nil {
				t.Fatal(ingested, detected)
			}
		}
	}
	for i, want := range []map[string][]string{
		{"reading": {"first kept", "first"}, "alert": {"first"}},
		{"reading": {"second kept", "second"}, "alert": {"second"}},
		{"reading": {"third"}, "alert": {"third"}},
	} {
		if diff := cmp.Diff(want, c.seen(t, c.customers[i])); diff != "" {
			t.Errorf("customer %d (-want +got):\n%s", i, diff)
		}
	}
	var states []string
	rows, err := c.pool.Query(t.Context(), `SELECT message_id FROM node_state WHERE node_id = $1 ORDER BY temperature`, sharedNode)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var message string
		if err := rows.Scan(&message); err != nil {
			t.Fatal(err)
		}
		states = append(states, message)
	}
	if diff := cmp.Diff([]string{"first", "second", "third"}, states); diff != "" || rows.Err() != nil {
		t.Errorf("states, %v (-want +got):\n%s", rows.Err(), diff)
	}
}

// fuzzedMessages is how many messages are fuzzed: 20,000, or CHANNEL_MESSAGES. A
// million take some minutes:
//
//	CHANNEL_MESSAGES=1000000 go test -run TestFuzzedMessages -timeout 60m ./run/local/redeliverytest
func fuzzedMessages(t *testing.T) int {
	t.Helper()
	text := os.Getenv("CHANNEL_MESSAGES")
	if text == "" {
		return 20_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFuzzedMessages shows contract 10.4, 10.5. Each message is one that a gateway
// signed, and then tampered with. Whatever ingest stores is in the channel of the
// customer whose gateway sent that very reading, under the time that it was taken.
func TestFuzzedMessages(t *testing.T) {
	t.Parallel()
	c := newChannels(t)
	n := fuzzedMessages(t)
	now := reading.TruncateTime(time.Now())
	type sent struct {
		channel     reading.Channel
		at          time.Time
		temperature float64
	}
	var mu sync.Mutex
	honest := map[string]sent{} // by message id: what may be stored, and as what
	var accepted, refused int
	work := make(chan int)
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			chance := rand.New(rand.NewPCG(uint64(worker), 15))
			for i := range work {
				owner := chance.IntN(2)
				g := c.gateways[owner]
				age := time.Duration(chance.IntN(2)*chance.IntN(86_400_000)) * time.Millisecond
				r := reading.Reading{NodeID: sharedNode, MessageID: strconv.Itoa(i), Time: now.Add(-age), Temperature: float64(chance.IntN(40)), Humidity: 40}
				truth := sent{reading.Channel(c.customers[owner]), r.Time, r.Temperature}
				m := c.message(t, &g, r, age, now)
				tampered := tamper(t, chance, c, owner, r, age, &m)
				mu.Lock()
				honest[r.MessageID] = truth
				mu.Unlock()
				err := c.ingest.Handle(t.Context(), m)
				mu.Lock()
				switch {
				case err == nil && tampered:
					t.Errorf("message %d was tampered with and taken: %v %s", i, m.Attributes, m.Data)
				case err == nil:
					accepted++
				case !tampered || !push.IsPermanent(err):
					t.Errorf("message %d (tampered with: %t): %v", i, tampered, err)
				default:
					refused++
				}
				mu.Unlock()
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	group.Wait()
	if accepted < n/20 || refused < n/2 {
		t.Errorf("%d messages were taken and %d refused", accepted, refused)
	}
	rows, err := c.pool.Query(t.Context(), `SELECT customer_id, message_id, timestamp, temperature FROM sensor_data.readings`)
	if err != nil {
		t.Fatal(err)
	}
	stored := 0
	for rows.Next() {
		var got sent
		var message string
		if err := rows.Scan(&got.channel, &message, &got.at, &got.temperature); err != nil {
			t.Fatal(err)
		}
		got.at = got.at.UTC()
		if want := honest[message]; got != want {
			t.Errorf("reading %s is stored as %+v, and was sent as %+v", message, got, want)
		}
		stored++
	}
	if err := rows.Err(); err != nil || stored != accepted {
		t.Errorf("%d readings are stored of %d that were taken, %v", stored, accepted, err)
	}
}

// tamper does to a signed message what an attacker could, or nothing.
func tamper(t *testing.T, chance *rand.Rand, c *channels, owner int, r reading.Reading, age time.Duration, m *push.Message) bool {
	t.Helper()
	other := c.gateways[1-owner]
	switch chance.IntN(10) {
	case 0: // nothing
		return false
	case 1: // a byte of the data
		m.Data = slices.Clone(m.Data)
		m.Data[chance.IntN(len(m.Data))] ^= byte(1 + chance.IntN(255))
	case 2: // another value, well formed
		altered := r
		altered.Temperature++
		m.Data = c.message(t, nil, altered, 0, m.PublishTime).Data
	case 3: // another time, well formed
		altered := r
		altered.Time = altered.Time.Add(time.Duration(1+chance.IntN(1000)) * time.Millisecond)
		m.Data = c.message(t, nil, altered, 0, m.PublishTime).Data
	case 4: // replayed a day later, and by minutes
		m.PublishTime = m.PublishTime.Add(reading.MaxAhead + time.Duration(1+chance.IntN(86_400_000))*time.Millisecond)
	case 5: // under another gateway's id
		m.Attributes[wire.GatewayIDAttribute] = other.id
	case 6: // under a gateway's id by a key of another: copied, or one's own
		altered := c.message(t, &gateway{other.id, c.gateways[owner].key}, r, age, m.PublishTime)
		m.Attributes = altered.Attributes
	case 7: // of a revoked gateway
		altered := c.message(t, &c.gateways[2], r, age, m.PublishTime)
		m.Attributes = altered.Attributes
	case 8: // a forged age, that would let it pass later
		later := time.Duration(1+chance.IntN(86_400_000)) * time.Millisecond
		m.PublishTime = m.PublishTime.Add(later)
		m.Attributes[wire.AgeAttribute] = strconv.FormatInt((age + later).Milliseconds(), 10)
	default: // a part of the signature
		signature := []byte(m.Attributes[wire.SignatureAttribute])
		signature[chance.IntN(80)] ^= byte(1 + chance.IntN(15))
		m.Attributes[wire.SignatureAttribute] = string(signature)
	}
	return true
}
