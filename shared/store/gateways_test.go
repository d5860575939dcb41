package store_test

import (
	"crypto/ed25519"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/wire"
)

func publicKey(t *testing.T) ed25519.PublicKey {
	t.Helper()
	key, _, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	return key
}

// enrolled makes an enrolled gateway of a customer's.
func (db fixture) enrolled(t *testing.T, customer int64) accounts.Gateway {
	t.Helper()
	_, code, err := db.CreateGateway(t.Context(), customer, 0, "Basement")
	must.Do(t, err)
	return must.Get(db.EnrolGateway(t.Context(), code, publicKey(t)))(t)
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
				gateway, err = db.RecordGatewayStatus(t.Context(), wire.StatusRequest{
					GatewayID: gateway.ID, BootID: boot[:1], Sequence: sequence,
				}, begin.Add(time.Duration(seconds)*time.Second))
			}
			must.Fail(t, "last", err, c.wantLast)
			must.Equal(t, "clone", c.wantClone, gateway.Clone(time.Now()))
			must.Hold(t, gateway.CloneSeenAt == nil || !gateway.Clone(gateway.CloneSeenAt.Add(accounts.CloneShown)),
				"it is shown as a clone for ever")
		})
	}
}

func TestReportedNodesAreBounded(t *testing.T) {
	t.Parallel()
	db := open(t)
	gateway := db.enrolled(t, db.anna)
	for round := range int64(3) {
		nodes := make([]wire.StatusNode, 2000)
		for i := range nodes {
			nodes[i].NodeID = strconv.FormatInt(round*2000+int64(i), 10)
		}
		gateway = must.Get(db.RecordGatewayStatus(t.Context(), wire.StatusRequest{GatewayID: gateway.ID, BootID: "a", Sequence: round + 1, Nodes: nodes}, time.Time{}))(t)
	}
	must.Equal(t, "nodes are kept", int64(5000), gateway.Nodes)
}

func (db fixture) count(t *testing.T, query string, args pgx.NamedArgs) (n int) {
	t.Helper()
	must.Do(t, db.pool.QueryRow(t.Context(), query, args).Scan(&n))
	return n
}

// TestReportedTimesCanBeShown shows that a time far off, which no answer could be
// written with, is not taken.
func TestReportedTimesCanBeShown(t *testing.T) {
	t.Parallel()
	db := open(t)
	gateway := db.enrolled(t, db.anna)
	far, early := time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -23*3600)), time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	must.Get(db.RecordGatewayStatus(t.Context(), wire.StatusRequest{GatewayID: gateway.ID, BootID: "a", Sequence: 1, Nodes: []wire.StatusNode{
		{NodeID: "n1", LastHeartbeat: far, LastReading: early}, {NodeID: "n2", LastHeartbeat: instant()},
	}}, time.Time{}))(t)
	found, err := db.DiscoveredNodes(t.Context(), db.anna)
	if err != nil || len(found) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	for _, n := range found {
		must.Hold(t, (n.LastHeartbeat != nil) == (n.NodeID == "n2") && n.LastReading == nil, "%+v", n)
	}
}
