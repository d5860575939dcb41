package store_test

import (
	"crypto/ed25519"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

func publicKey(t *testing.T) ed25519.PublicKey {
	t.Helper()
	key, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// enrolled makes an enrolled gateway of a customer's.
func (db fixture) enrolled(t *testing.T, customer int64) store.Gateway {
	t.Helper()
	_, code, err := db.CreateGateway(t.Context(), customer, "Basement")
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := db.EnrolGateway(t.Context(), code, publicKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return gateway
}

// TestGatewayIsEnrolledOnce shows contract 10.2.
func TestGatewayIsEnrolledOnce(t *testing.T) {
	t.Parallel()
	db := open(t)
	created, code, err := db.CreateGateway(t.Context(), db.anna, "Basement")
	if err != nil {
		t.Fatal(err)
	}
	if created.CustomerID != db.anna || created.Name != "Basement" || created.EnrolledAt != nil || created.Account != "anna12@example.com" {
		t.Errorf("created %+v", created)
	}
	if keys, err := db.GatewayKeys(t.Context(), []string{created.ID}); err != nil || len(keys) != 0 {
		t.Errorf("before enrolment it has %v, %v", keys, err)
	}
	if asked, err := db.GatewayByCode(t.Context(), strings.ToLower(code)); err != nil || asked.ID != created.ID || asked.EnrolledAt != nil {
		t.Errorf("asked what the code is for: %+v, %v", asked, err)
	}
	key := publicKey(t)
	first, err := db.EnrolGateway(t.Context(), code, key)
	if err != nil || first.ID != created.ID || first.EnrolledAt == nil || !first.PublicKey.Equal(key) {
		t.Fatalf("enrolled %+v, %v", first, err)
	}
	db.sql(t, `UPDATE gateways SET code_expires_at = now() - interval '1 day'`, nil) // the reply was lost, and somebody tries again the day after
	again, err := db.EnrolGateway(t.Context(), strings.ReplaceAll(code, "-", ""), key)
	if diff := cmp.Diff(first, again); diff != "" || err != nil {
		t.Errorf("the same code and key again, %v (-first +again):\n%s", err, diff)
	}
	_, err = db.EnrolGateway(t.Context(), code, publicKey(t))
	mustFail(t, "another key", err, store.ErrGatewayEnrolled)
	keys, err := db.GatewayKeys(t.Context(), []string{created.ID, "gw-unknown"})
	want := map[string]store.GatewayKey{created.ID: {Channel: reading.Channel(db.anna), PublicKey: key}}
	if diff := cmp.Diff(want, keys); diff != "" || err != nil {
		t.Errorf("keys, %v (-want +got):\n%s", err, diff)
	}
}

func TestEnrolmentCodeIsRefused(t *testing.T) {
	t.Parallel()
	db := open(t)
	_, expired, err := db.CreateGateway(t.Context(), db.anna, "old")
	if err != nil {
		t.Fatal(err)
	}
	db.sql(t, `UPDATE gateways SET code_expires_at = now()`, nil)
	revoked, withdrawn, err := db.CreateGateway(t.Context(), db.anna, "withdrawn")
	if err != nil {
		t.Fatal(err)
	}
	if err := db.RevokeGateway(t.Context(), db.anna, revoked.ID); err != nil {
		t.Fatal(err)
	}
	for name, code := range map[string]string{"expired": expired, "withdrawn": withdrawn, "unknown": "AAAAA-AAAAA-AAAAA-AAAAA", "empty": ""} {
		_, err := db.GatewayByCode(t.Context(), code)
		mustFail(t, name+", asked", err, store.ErrNoGateway)
		_, err = db.EnrolGateway(t.Context(), code, publicKey(t))
		mustFail(t, name+", enrolled", err, store.ErrNoGateway)
	}
}

// TestOneOfManyKeysIsEnrolled shows contract 10.2.
func TestOneOfManyKeysIsEnrolled(t *testing.T) {
	t.Parallel()
	db := open(t)
	_, code, err := db.CreateGateway(t.Context(), db.anna, "Basement")
	if err != nil {
		t.Fatal(err)
	}
	won := make(chan string, 8)
	var group sync.WaitGroup
	for range cap(won) {
		key := publicKey(t)
		group.Go(func() {
			if _, err := db.EnrolGateway(t.Context(), code, key); err == nil {
				won <- string(key)
			} else {
				mustFail(t, "the others", err, store.ErrGatewayEnrolled)
			}
		})
	}
	group.Wait()
	if len(won) != 1 {
		t.Errorf("%d keys were enrolled", len(won))
	}
}

// TestGatewaysAreTheCallersAlone shows contract 10.1.
func TestGatewaysAreTheCallersAlone(t *testing.T) {
	t.Parallel()
	db := open(t)
	gateway := db.enrolled(t, db.anna)
	mustFail(t, "another revokes", db.RevokeGateway(t.Context(), db.bruno, gateway.ID), store.ErrNoGateway)
	if theirs, err := db.Gateways(t.Context(), db.bruno); err != nil || len(theirs) != 0 {
		t.Errorf("Bruno sees %+v, %v", theirs, err)
	}
	if hers, err := db.Gateways(t.Context(), db.anna); err != nil || len(hers) != 1 || hers[0].Revoked() {
		t.Errorf("Anna sees %+v, %v", hers, err)
	}
	if err := db.RevokeGateway(t.Context(), db.anna, gateway.ID); err != nil {
		t.Fatal(err)
	}
	mustFail(t, "again", db.RevokeGateway(t.Context(), db.anna, gateway.ID), store.ErrNoGateway)
	if hers, err := db.Gateways(t.Context(), db.anna); err != nil || len(hers) != 1 || !hers[0].Revoked() {
		t.Errorf("Anna still sees %+v, %v", hers, err)
	}
	if keys, err := db.GatewayKeys(t.Context(), []string{gateway.ID}); err != nil || !keys[gateway.ID].Revoked {
		t.Errorf("its messages are verified by %+v, %v", keys, err)
	}
	if got, err := db.Gateway(t.Context(), gateway.ID); err != nil || !got.Revoked() {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err := db.Gateway(t.Context(), "gw-unknown")
	mustFail(t, "unknown", err, store.ErrNoGateway)
}

func TestGatewayStatusIsKept(t *testing.T) {
	t.Parallel()
	db := open(t)
	gateway := db.enrolled(t, db.anna)
	status := store.GatewayStatus{
		GatewayID: gateway.ID, BootID: "a", Sequence: 1, Version: "1.2.0", Role: "primary", ClockOffset: -24 * time.Hour, OutboxReadings: 7,
		Nodes: []store.ReportedNode{{NodeID: "n1", LastHeartbeat: instant()}, {NodeID: "n1"}, {NodeID: "n2", LastReading: instant()}},
	}
	got, err := db.RecordGatewayStatus(t.Context(), status)
	if err != nil || got.LastSeen == nil || got.Version != "1.2.0" || got.Role != "primary" || got.ClockOffset != -24*time.Hour ||
		got.OutboxReadings != 7 || got.Nodes != 2 || got.Clone(time.Now()) {
		t.Errorf("kept %+v, %v", got, err)
	}
	if err := db.RevokeGateway(t.Context(), db.anna, gateway.ID); err != nil {
		t.Fatal(err)
	}
	status.Sequence, status.Version = 2, "2"
	if got, err := db.RecordGatewayStatus(t.Context(), status); err != nil || !got.Revoked() || got.Version != "1.2.0" {
		t.Errorf("of a revoked gateway %+v, %v", got, err)
	}
	_, err = db.RecordGatewayStatus(t.Context(), store.GatewayStatus{GatewayID: "gw-unknown", BootID: "a", Sequence: 1})
	mustFail(t, "unknown", err, store.ErrNoGateway)
}

// TestTwoBootsOfOneKeyAreAClone shows contract 10.6: who signs later than the boot that followed, or a
// sequence again, has the key. A recording, which was signed before, blames nobody.
func TestTwoBootsOfOneKeyAreAClone(t *testing.T) {
	t.Parallel()
	db := open(t)
	for name, c := range map[string]struct {
		statuses  []string // boot, sequence and second in which it is signed
		wantClone bool
		wantLast  error
	}{
		"one boot":                            {statuses: []string{"a1@1", "a2@2", "a5@3"}},
		"its clock is set back":               {statuses: []string{"a1@200", "a2@2", "b1@3"}},
		"restarted twice":                     {statuses: []string{"a1@1", "a2@2", "b1@3", "c1@4", "c2@5"}},
		"the boot before speaks again":        {statuses: []string{"a1@1", "b1@2", "a2@3"}, wantClone: true},
		"one of three speaks again":           {statuses: []string{"a1@1", "b1@2", "c1@3", "a2@4"}, wantClone: true},
		"two in turn":                         {statuses: []string{"a1@1", "b1@2", "a2@3", "b2@4"}, wantClone: true},
		"a copy of the running machine":       {statuses: []string{"a1@1", "a2@2", "a3@3", "a2@4"}, wantClone: true, wantLast: store.ErrStatusReplayed},
		"the same status again":               {statuses: []string{"a1@1", "a2@2", "a2@2"}, wantLast: store.ErrStatusReplayed},
		"a recording of the boot":             {statuses: []string{"a1@1", "a2@2", "a3@3", "a1@1"}, wantLast: store.ErrStatusReplayed},
		"a recording of the boot before":      {statuses: []string{"a1@1", "a2@2", "b1@3", "a2@2"}, wantLast: store.ErrStatusReplayed},
		"a recording of an earlier boot":      {statuses: []string{"a1@1", "b1@2", "c1@3", "a1@1"}, wantLast: store.ErrStatusReplayed},
		"a recording from before a set clock": {statuses: []string{"a1@200", "a2@2", "b1@3", "a1@200"}, wantLast: store.ErrStatusReplayed},
		"the gateway after a recording":       {statuses: []string{"a1@1", "b1@2", "c1@3", "a1@1", "b1@2", "c2@4"}},
		"a clone's recording":                 {statuses: []string{"a1@1", "b1@2", "a2@3", "b1@2"}, wantClone: true, wantLast: store.ErrStatusReplayed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gateway := db.enrolled(t, db.anna)
			begin := time.Now().Truncate(time.Microsecond).Add(789) // a column has no nanoseconds
			var err error
			for _, status := range c.statuses {
				boot, second, _ := strings.Cut(status, "@")
				sequence, _ := strconv.ParseInt(boot[1:], 10, 64)
				seconds, _ := strconv.Atoi(second)
				gateway, err = db.RecordGatewayStatus(t.Context(), store.GatewayStatus{
					GatewayID: gateway.ID, BootID: boot[:1], Sequence: sequence, SignedAt: begin.Add(time.Duration(seconds) * time.Second),
				})
			}
			mustFail(t, "last", err, c.wantLast)
			if got := gateway.Clone(time.Now()); got != c.wantClone {
				t.Errorf("clone: %t, want %t", got, c.wantClone)
			}
			if gateway.Clone(time.Now().Add(store.CloneShown + time.Hour)) {
				t.Error("it is shown as a clone for ever")
			}
		})
	}
}

// TestDiscoveredNodesAreOfTheCallersGateways shows contract 10.7.
func TestDiscoveredNodesAreOfTheCallersGateways(t *testing.T) {
	t.Parallel()
	db := open(t)
	hers, his := db.enrolled(t, db.anna), db.enrolled(t, db.bruno)
	second := db.enrolled(t, db.anna)
	report := func(gateway store.Gateway, sequence int64, nodes ...store.ReportedNode) {
		t.Helper()
		if _, err := db.RecordGatewayStatus(t.Context(), store.GatewayStatus{GatewayID: gateway.ID, BootID: "a", Sequence: sequence, Nodes: nodes}); err != nil {
			t.Fatal(err)
		}
	}
	report(hers, 1, store.ReportedNode{NodeID: "old", LastHeartbeat: instant()}, store.ReportedNode{NodeID: "new", LastHeartbeat: instant().Add(time.Minute)},
		store.ReportedNode{NodeID: "sensor", LastReading: instant()})
	report(second, 1, store.ReportedNode{NodeID: "old", LastHeartbeat: instant().Add(-time.Hour)})
	report(his, 1, store.ReportedNode{NodeID: "his"}, store.ReportedNode{NodeID: "new"})
	db.sensor(t, db.anna, db.annasRoom, "sensor")
	db.sensor(t, db.bruno, db.brunosRoom, "old") // another's sensor of that id changes nothing for her
	if err := db.UpdateNodeStates(t.Context(), []store.NodeReading{
		{Reading: reading.Reading{Channel: reading.Channel(db.anna), NodeID: "new", MessageID: "m", Time: instant(), Temperature: 21, Humidity: 40}, GatewayID: hers.ID},
		{Reading: reading.Reading{NodeID: "old", MessageID: "m", Time: instant(), Temperature: 99, Humidity: 99}},
	}); err != nil {
		t.Fatal(err)
	}
	type seen struct {
		node, gateway string
		temperature   float64
	}
	list := func(customer int64) (all []seen) {
		t.Helper()
		found, err := db.DiscoveredNodes(t.Context(), customer)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range found {
			s := seen{node: n.NodeID, gateway: n.GatewayID}
			if n.Temperature != nil {
				s.temperature = *n.Temperature
			}
			all = append(all, s)
		}
		return all
	}
	want := []seen{{"new", hers.ID, 21}, {"old", hers.ID, 0}}
	if diff := cmp.Diff(want, list(db.anna), cmp.AllowUnexported(seen{})); diff != "" {
		t.Errorf("Anna (-want +got):\n%s", diff)
	}
	want = []seen{{"his", his.ID, 0}, {"new", his.ID, 0}}
	if diff := cmp.Diff(want, list(db.bruno), cmp.AllowUnexported(seen{})); diff != "" {
		t.Errorf("Bruno (-want +got):\n%s", diff)
	}
	if err := db.RevokeGateway(t.Context(), db.bruno, his.ID); err != nil {
		t.Fatal(err)
	}
	if left := list(db.bruno); len(left) != 0 {
		t.Errorf("of a revoked gateway: %v", left)
	}
}

func TestReportedNodesAreBounded(t *testing.T) {
	t.Parallel()
	db := open(t)
	gateway := db.enrolled(t, db.anna)
	for round := range int64(3) {
		nodes := make([]store.ReportedNode, 2000)
		for i := range nodes {
			nodes[i].NodeID = strconv.FormatInt(round*2000+int64(i), 10)
		}
		var err error
		gateway, err = db.RecordGatewayStatus(t.Context(), store.GatewayStatus{GatewayID: gateway.ID, BootID: "a", Sequence: round + 1, Nodes: nodes})
		if err != nil {
			t.Fatal(err)
		}
	}
	if gateway.Nodes != 5000 {
		t.Errorf("%d nodes are kept", gateway.Nodes)
	}
}

func (db fixture) count(t *testing.T, query string, args pgx.NamedArgs) (n int) {
	t.Helper()
	if err := db.pool.QueryRow(t.Context(), query, args).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestReportedTimesCanBeShown shows that a time far off, which no answer could be
// written with, is not taken.
func TestReportedTimesCanBeShown(t *testing.T) {
	t.Parallel()
	db := open(t)
	gateway := db.enrolled(t, db.anna)
	far, early := time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -23*3600)), time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := db.RecordGatewayStatus(t.Context(), store.GatewayStatus{GatewayID: gateway.ID, BootID: "a", Sequence: 1, Nodes: []store.ReportedNode{
		{NodeID: "n1", LastHeartbeat: far, LastReading: early}, {NodeID: "n2", LastHeartbeat: instant()},
	}}); err != nil {
		t.Fatal(err)
	}
	found, err := db.DiscoveredNodes(t.Context(), db.anna)
	if err != nil || len(found) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	for _, n := range found {
		if (n.LastHeartbeat != nil) != (n.NodeID == "n2") || n.LastReading != nil {
			t.Errorf("%+v", n)
		}
	}
}
