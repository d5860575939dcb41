package store_test

import (
	"crypto/ed25519"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/wire"
)

func TestCreateCustomerNamesTheDuplicate(t *testing.T) {
	t.Parallel()
	db := open(t)
	_, err := db.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "Anna12@EXAMPLE.com", Username: "carla1", PasswordHash: "x"})
	must.Fail(t, "address in another case", err, store.ErrEmailTaken)
	_, err = db.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "c@example.com", Username: "anna12", PasswordHash: "x"})
	must.Fail(t, "username", err, store.ErrUsernameTaken)
	_, err = db.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "c@example.com", Username: "ANNA12", PasswordHash: "x"})
	must.Fail(t, "username in another case", err, store.ErrUsernameTaken)
	must.Get(db.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "s@example.com", Username: "Ährenstück", PasswordHash: "x"}))(t)
	_, err = db.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "c@example.com", Username: "ÄHRENSTÜCK", PasswordHash: "x"})
	must.Fail(t, "username in another case of letters beyond ASCII", err, store.ErrUsernameTaken)
}

// TestVersionBeforeKeepsLogins writes to customers as the version before does, and to persons:
// each sees what the other has changed of the oldest owner.
func TestVersionBeforeKeepsLogins(t *testing.T) {
	t.Parallel()
	db := open(t)
	args := pgx.NamedArgs{"id": db.anna}
	owner := must.Get(db.PersonByEmail(t.Context(), "ANNA12@example.com"))(t)
	must.Equal(t, "role", "owner", owner.Role)
	must.Equal(t, "name", "anna12", owner.Name)
	db.sql(t, `INSERT INTO persons (customer_id, name, email, password_hash, role) VALUES (@id, 'Viewer', 'v@example.com', 'v', 'viewer')`, args)
	check := func(what string, want accounts.Person) {
		t.Helper()
		must.Equal(t, what, want, must.Get(db.Person(t.Context(), db.anna, owner.ID))(t))
		old := accounts.Person{ID: owner.ID, CustomerID: db.anna, Name: want.Name, Role: "owner"}
		must.Do(t, db.pool.QueryRow(t.Context(), `SELECT username, email, password_hash, generation FROM customers WHERE id = $1`, db.anna).
			Scan(&old.Username, &old.Email, &old.PasswordHash, &old.Generation))
		must.Equal(t, what+", as the version before sees it", want, old)
	}
	db.sql(t, `UPDATE customers SET email = 'new@example.com', password_hash = 'y', generation = generation + 1, username = 'anna34' WHERE id = @id`, args)
	owner.Email, owner.PasswordHash, owner.Generation, owner.Username, owner.Name = "new@example.com", "y", owner.Generation+1, "anna34", "anna34"
	check("changed by the version before", owner)
	must.Do(t, db.UpdatePerson(t.Context(), db.anna, owner.ID, accounts.PersonChange{Name: new("Ana"), Email: new("a@example.com"), PasswordHash: new("z")}))
	must.Do(t, db.Rename(t.Context(), db.anna, "anna56"))
	owner.Email, owner.PasswordHash, owner.Generation, owner.Username, owner.Name = "a@example.com", "z", owner.Generation+1, "anna56", "Ana"
	check("changed as a person", owner)
	must.Fail(t, "a viewer's address", db.UpdatePerson(t.Context(), db.anna, owner.ID, accounts.PersonChange{Email: new("V@example.com")}), store.ErrEmailTaken)
	must.Fail(t, "another account's person", db.UpdatePerson(t.Context(), db.bruno, owner.ID, accounts.PersonChange{Role: new("viewer")}), store.ErrNoPerson)
}

func TestVisibleNodesAreTheCallersAlone(t *testing.T) {
	t.Parallel()
	db := openWith(t, "b", "a")
	db.sensor(t, db.bruno, db.brunosRoom, "c")
	found := must.Get(db.VisibleNodes(t.Context(), db.anna, []string{"c", "b", "a", "a", "unknown"}))(t)
	must.Hold(t, len(found) == 2 && found[0].ID == "a" && found[1].ID == "b", "found %+v", found)
}

func TestOneOfManyCreatorsWinsAnIdentifier(t *testing.T) {
	t.Parallel()
	db := open(t)
	var won atomic.Int32
	var group sync.WaitGroup
	for i := range 20 {
		customer, room := db.anna, db.annasRoom
		if i%2 == 1 {
			customer, room = db.bruno, db.brunosRoom
		}
		group.Go(func() {
			_, err := db.CreateSensor(t.Context(), customer, sensorOf("wanted", room))
			switch {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, store.ErrSensorExists):
				t.Error(err)
			}
		})
	}
	group.Wait()
	must.Equal(t, "creations succeeded", int32(1), won.Load())
}

// n1 is what the pipeline is told of the identifier n1.
func (db fixture) n1(t *testing.T) pipeline.SensorStatus {
	t.Helper()
	nodes := must.Get(db.SensorStatuses(t.Context(), openNodes("n1")))(t)
	return nodes[reading.Node{ID: "n1"}]
}

func TestEveryWayOfDeletingASensorLeavesATombstone(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(t *testing.T, db fixture){
		"sensor": func(t *testing.T, db fixture) {
			t.Helper()
			must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1"))
		},
		"room": func(t *testing.T, db fixture) {
			t.Helper()
			must.Do(t, db.DeleteRoom(t.Context(), db.anna, db.annasRoom))
		},
		"customer": func(t *testing.T, db fixture) {
			t.Helper()
			db.sql(t, `DELETE FROM customers WHERE id = @id`, pgx.NamedArgs{"id": db.anna})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			got := db.n1(t)
			must.Hold(t, !got.Owned && !got.Deleted, "before anyone has it: %+v", got)
			db.sensor(t, db.anna, db.annasRoom, "n1")
			got = db.n1(t)
			must.Hold(t, got.Owned && !got.Deleted, "owned: %+v", got)
			db.insert(t, hot("a"), incidents.AlertStored)
			remove(t, db)
			got = db.n1(t)
			must.Hold(t, !got.Owned && got.Deleted, "deleted: %+v", got)
			must.Hold(t, name == "customer" || len(db.history(t, db.anna)) == 1, "its alerts are gone")
			db.sensor(t, db.bruno, db.brunosRoom, "n1")
			got = db.n1(t)
			must.Hold(t, got.Owned && !got.Deleted, "created again: %+v", got)
		})
	}
}

// now is the database's clock, which dates tombstones.
func (db fixture) now(t *testing.T) time.Time {
	t.Helper()
	var now time.Time
	must.Do(t, db.pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now))
	return now
}

// TestSensorStatusHasTheThresholdsThatItsOwnerSet has an owner choose the defaults, and then others;
// one who only looks at them has set none.
func TestSensorStatusHasTheThresholdsThatItsOwnerSet(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sensor(t, db.bruno, db.brunosRoom, "n2")
	for _, customer := range []int64{db.anna, db.bruno} {
		must.Get(db.Thresholds(t.Context(), customer))(t)
	}
	for _, limit := range []float64{50, 30} {
		must.Get(db.SetThresholds(t.Context(), db.anna, &limit, nil))(t)
		nodes := must.Get(db.SensorStatuses(t.Context(), openNodes("n1", "n2", "n3")))(t)
		set, unset := nodes[reading.Node{ID: "n1"}].Thresholds, nodes[reading.Node{ID: "n2"}].Thresholds
		must.Hold(t, len(nodes) == 2 && set != nil && set.MaxTemperature == limit && unset == nil, "nodes %+v", nodes)
	}
}

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
