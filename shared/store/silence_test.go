package store_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/tooltest"
)

// site is a simulated fleet: nodes of enrolled gateways that send every 30 s to 2 min
// with jitter and lose readings, and are cut at random.
type site struct {
	nodes   []*simNode
	byID    map[string]*simNode
	pending []pipeline.NodeReading // what the service has not taken yet
}

type simNode struct {
	id, gateway string
	interval    time.Duration
	loss        float64
	next        time.Time
	newest      time.Time // that the service has
	cut, back   time.Time
	told        bool
}

func (n *simNode) isCut(at time.Time) bool { return !at.Before(n.cut) && at.Before(n.back) }

const simTick = 10 * time.Second

// TestSilences24Hours simulates nodes that are cut at random. Each silence is told
// within its time and ten seconds, none falsely; a gateway that is cut is silent as a
// whole; while the service itself is late, and after, nobody is blamed. Contract 11.4.
func TestSilences24Hours(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	count, lasts, gateways := 60, 150*time.Minute, 6
	if long() {
		count, lasts, gateways = 5000, 24*time.Hour, 100
	}
	db := open(t)
	random := rand.New(rand.NewPCG(3, 1))
	begin, end := instant(), instant().Add(lasts)
	s := site{byID: map[string]*simNode{}}
	for i := range count {
		n := &simNode{id: fmt.Sprint("n", i), gateway: fmt.Sprintf("gw-%d", i%gateways), interval: 30 * time.Second, loss: 0.05}
		if i%7 == 0 { // three of its intervals are longer than five minutes
			n.interval, n.loss = 2*time.Minute, 0
		}
		n.next = begin.Add(time.Duration(random.Int64N(int64(n.interval))))
		n.cut, n.back = end, end
		if i%3 == 0 {
			n.cut = begin.Add(20*time.Minute + time.Duration(random.Int64N(int64(lasts-time.Hour))))
			n.back = n.cut.Add(20*time.Minute + time.Duration(random.IntN(40))*time.Minute)
		}
		s.nodes = append(s.nodes, n)
		s.byID[n.id] = n
	}
	gatewayCut := begin.Add(60 * time.Minute)
	for _, n := range s.nodes {
		if n.gateway == "gw-1" {
			n.cut, n.back = gatewayCut, gatewayCut.Add(30*time.Minute)
		}
	}
	db.sql(t, `INSERT INTO sensors (node_id, customer_id, room_id, name, type, signed_from)
		SELECT 'n' || i, @anna, @room, 'Rack', 'T', '-infinity' FROM generate_series(0, @last) AS i`,
		pgx.NamedArgs{"anna": db.anna, "room": db.annasRoom, "last": count - 1})
	outage, over := begin.Add(110*time.Minute), begin.Add(122*time.Minute)
	var probed time.Time
	told, whole, known, largest := 0, 0, 0, time.Duration(0)
	for now := begin; now.Before(end); now = now.Add(simTick) {
		s.send(random, db, now)
		late := !now.Before(outage) && now.Before(over)
		if !late {
			s.deliver(t, db)
			if now.Sub(probed) >= time.Minute {
				probed = now
				must.Do(t, db.RecordProbe(t.Context(), now, now))
			}
		}
		must.Do(t, db.Settle(t.Context(), db.anna, now))
		blamed, cutGateways := db.toldSilent(t)
		for id := range blamed {
			if n := s.byID[id]; !n.cut.Before(now) || !n.back.After(n.newest) { // it was not cut since then
				t.Fatalf("%s after %s: %s is blamed, its newest reading is %s old", now.Sub(begin), n.interval, n.id, now.Sub(n.newest))
			}
		}
		silent, _, err := db.Silences(t.Context(), db.anna, now)
		must.Do(t, err)
		for _, silence := range silent {
			n := s.byID[silence.NodeID]
			if !blamed[n.id] {
				t.Fatalf("%s is silent and not told", n.id)
			}
			if due := incident.SilentFrom(silence.Newest, silence.Interval); !n.told {
				n.told = true
				told++
				if due.Before(outage) || due.Sub(over) > 7*time.Minute { // else it waits again, see incident.Probe
					largest = max(largest, now.Sub(due))
				}
			}
		}
		if late && now.Sub(outage) <= 3*time.Minute {
			known = len(blamed)
		} else if late && len(blamed) > known {
			t.Fatalf("%d nodes are blamed while the service is late", len(blamed)-known)
		}
		settled := now.Before(outage) || now.Sub(over) > 7*time.Minute
		for _, n := range s.nodes {
			interval := n.interval * 6 / 5 // as lost and late readings make it appear
			if due := incident.SilentFrom(n.newest, interval).Add(simTick); settled && n.isCut(now) && n.newest.Before(n.cut.Add(time.Second)) && now.After(due) && !blamed[n.id] {
				t.Fatalf("%s: %s is cut for %s and not told", now.Sub(begin), n.id, now.Sub(n.cut))
			}
		}
		if cutGateways["gw-1"] && now.Sub(gatewayCut) > 6*time.Minute && now.Before(gatewayCut.Add(30*time.Minute)) {
			whole++
		}
	}
	must.Hold(t, largest <= simTick && told >= count/4 && whole >= 20,
		"%d silences told, the last %s after its time; the gateway was silent as a whole %d times", told, largest, whole)
	t.Logf("%d silences told, at most %s after their time", told, largest)
}

// toldSilent are the nodes of whose silence people are told, and the gateways that are silent as a whole.
func (db fixture) toldSilent(t *testing.T) (nodes, gateways map[string]bool) {
	t.Helper()
	rows := must.Get(db.pool.Query(t.Context(), `
		SELECT e.node_id, CASE WHEN e.of_gateway THEN e.gateway_id ELSE '' END
		FROM excursions e
		JOIN room_incidents i ON i.id = e.incident_id AND i.lasting AND i.cause = 'silent'
		WHERE e.kind = 'silence' AND e.lasting`))(t)
	nodes, gateways = map[string]bool{}, map[string]bool{}
	var node, gateway string
	must.Get(pgx.ForEachRow(rows, []any{&node, &gateway}, func() error {
		nodes[node], gateways[gateway] = true, true
		return nil
	}))(t)
	return nodes, gateways
}

// send makes the readings until now: they wait until the service takes them.
func (s *site) send(random *rand.Rand, db fixture, now time.Time) {
	for _, n := range s.nodes {
		for !n.next.After(now) {
			at := n.next
			n.next = at.Add(n.interval + time.Duration(random.NormFloat64()*float64(n.interval)/60))
			if n.isCut(at) || random.Float64() < n.loss {
				continue
			}
			s.pending = append(s.pending, pipeline.NodeReading{GatewayID: n.gateway, Reading: reading.Reading{
				Channel: reading.Channel(db.anna), NodeID: n.id, MessageID: strconv.FormatInt(at.UnixMicro(), 10), Time: reading.TruncateTime(at), Temperature: 22, Humidity: 40,
			}})
		}
	}
}

func (s *site) deliver(t *testing.T, db fixture) {
	t.Helper()
	if len(s.pending) == 0 {
		return
	}
	must.Do(t, db.UpdateNodeStates(t.Context(), s.pending))
	for _, r := range s.pending {
		n := s.byID[r.NodeID]
		if r.Time.After(n.newest) {
			n.newest, n.told = r.Time, false
		}
	}
	s.pending = s.pending[:0]
}

// TestDarkSites has several sites, of which one after the other falls silent.
func TestDarkSites(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1", "n2", "never")
	db.sensor(t, db.bruno, db.brunosRoom, "theirs")
	keep := func(node string, channel int64, minute int) {
		t.Helper()
		r := judged(node, 60*minute, 20).Reading
		r.Channel = reading.Channel(channel)
		db.heard(t, r)
	}
	at := func(minute int) time.Time { return instant().Add(time.Duration(minute) * time.Minute) }
	want := func(when string, minute int, sites ...incidents.DarkSite) {
		t.Helper()
		dark := must.Get(db.DarkSites(t.Context(), at(minute)))(t)
		for i := range dark {
			dark[i].Since = dark[i].Since.UTC()
		}
		must.Equal(t, when, sites, dark, cmpopts.EquateEmpty())
	}
	keep("n1", 0, 0)
	keep("n2", 0, 10)
	keep("theirs", 0, 20)
	basement, attic, revoked := db.enrolled(t, db.anna), db.enrolled(t, db.anna), db.enrolled(t, db.anna)
	seen := func(g accounts.Gateway, minute int) {
		t.Helper()
		must.Get(db.pool.Exec(t.Context(), `UPDATE gateways SET last_seen = $2 WHERE id = $1`, g.ID, at(minute)))(t)
	}
	seen(basement, 0)
	seen(attic, 20)
	seen(revoked, 0)
	must.Do(t, db.RevokeGateway(t.Context(), db.anna, revoked.ID))

	annas := incidents.DarkSite{CustomerID: db.anna, Since: at(10)}
	cellar := incidents.DarkSite{CustomerID: db.anna, GatewayID: basement.ID, Since: at(0)}
	want("all are well", 14)
	want("one gateway of two, while others go on", 24, cellar)
	want("one node of two sent within 15 minutes", 20, cellar)
	want("the open site of a customer too", 34, annas, cellar)
	want("given up after a month", 31*24*60)

	keep("theirs", db.bruno, 25) // through an enrolled gateway from now on
	seen(attic, 60)
	want("after enrolment", 60, annas, cellar)
	must.Do(t, db.RecordProbe(t.Context(), at(50), at(50)))
	want("the service is late itself", 60, cellar)
}

// TestProbe delivers readings of the probe: a steady stream in disorder and twice, and
// one that was late or came after a gap.
func TestProbe(t *testing.T) {
	t.Parallel()
	start := instant()
	type delivery struct{ published, received time.Duration }
	var steady []delivery
	for i := range 30 {
		d := delivery{time.Duration(i) * time.Minute, time.Duration(i)*time.Minute + time.Second}
		steady = append(steady, d, d)
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(steady), func(i, j int) {
		if i/4 == j/4 {
			steady[i], steady[j] = steady[j], steady[i]
		}
	})
	for name, c := range map[string]struct {
		readings []delivery
		want     incident.Probe
	}{
		"none":   {},
		"steady": {steady, incident.Probe{Published: start.Add(29 * time.Minute)}},
		"received late": {
			[]delivery{{0, 0}, {time.Minute, 2*time.Minute + time.Second}, {2 * time.Minute, 2 * time.Minute}},
			incident.Probe{Published: start.Add(2 * time.Minute), LateAt: start.Add(2*time.Minute + time.Second)},
		},
		"after a gap": {
			[]delivery{{0, 0}, {3 * time.Minute, 3 * time.Minute}, {4 * time.Minute, 4 * time.Minute}},
			incident.Probe{Published: start.Add(4 * time.Minute), LateAt: start.Add(3 * time.Minute)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			for _, d := range c.readings {
				must.Do(t, db.RecordProbe(t.Context(), start.Add(d.published), start.Add(d.received)))
			}
			must.Equal(t, "probe", c.want, must.Get(db.Probe(t.Context()))(t))
		})
	}
}
