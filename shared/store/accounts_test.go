package store_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/wire"
)

func TestCreateCustomerNamesTheDuplicate(t *testing.T) {
	t.Parallel()
	db := open(t)
	create := func(email, username string) error {
		return must.Err(db.CreateCustomer(t.Context(), accounts.NewCustomer{Email: email, Username: username, PasswordHash: "x"}))
	}
	must.Fail(t, "address in another case", create("Anna12@EXAMPLE.com", "carla1"), store.ErrEmailTaken)
	must.Fail(t, "username", create("c@example.com", "anna12"), store.ErrUsernameTaken)
	must.Fail(t, "username in another case", create("c@example.com", "ANNA12"), store.ErrUsernameTaken)
	must.Do(t, create("s@example.com", "Ährenstück"))
	must.Fail(t, "in another case of letters beyond ASCII", create("c@example.com", "ÄHRENSTÜCK"), store.ErrUsernameTaken)
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
	customers, rooms := []int64{db.anna, db.bruno}, []int64{db.annasRoom, db.brunosRoom}
	won := winners(t, store.ErrSensorExists, func(i int) error {
		return must.Err(db.CreateSensor(t.Context(), customers[i%2], sensorOf("wanted", rooms[i%2])))
	})
	must.Equal(t, "creations succeeded", 1, won)
}

// n1 is what the pipeline is told of the identifier n1: whether somebody has it, and whether it was deleted.
func (db fixture) n1(t *testing.T) (owned, deleted bool) {
	t.Helper()
	status := must.Get(db.SensorStatuses(t.Context(), openNodes("n1")))(t)[reading.Node{ID: "n1"}]
	return status.Owned, status.Deleted
}

func TestEveryWayOfDeletingASensorLeavesATombstone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, remove := range map[string]func(db fixture) error{
		"sensor": func(db fixture) error { return db.DeleteSensor(ctx, db.anna, "n1") },
		"room":   func(db fixture) error { return db.DeleteRoom(ctx, db.anna, db.annasRoom) },
		"customer": func(db fixture) error {
			return must.Err(db.pool.Exec(ctx, `DELETE FROM customers WHERE id = $1`, db.anna))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			is := func(what string, owned, deleted bool) {
				t.Helper()
				isOwned, isDeleted := db.n1(t)
				must.Equal(t, what+": owned, deleted", [2]bool{owned, deleted}, [2]bool{isOwned, isDeleted})
			}
			is("before anyone has it", false, false)
			db.sensor(t, db.anna, db.annasRoom, "n1")
			is("Anna's", true, false)
			db.insert(t, hot("a"), 1)
			must.Do(t, remove(db))
			is("removed", false, true)
			must.Hold(t, name == "customer" || len(db.history(t, db.anna)) == 1, "its alerts are gone")
			db.sensor(t, db.bruno, db.brunosRoom, "n1")
			is("created again", true, false)
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

// TestReportedTimesCanBeShown shows that a time far off, which no answer could be written with, is not taken.
func TestReportedTimesCanBeShown(t *testing.T) {
	t.Parallel()
	db := open(t)
	gateway := db.enrolled(t, db.anna)
	far, early := time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -23*3600)), time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	must.Get(db.RecordGatewayStatus(t.Context(), wire.StatusRequest{GatewayID: gateway.ID, BootID: "a", Sequence: 1, Nodes: []wire.StatusNode{
		{NodeID: "n1", LastHeartbeat: far, LastReading: early}, {NodeID: "n2", LastHeartbeat: instant()},
	}}, time.Time{}))(t)
	found := must.Get(db.DiscoveredNodes(t.Context(), db.anna))(t)
	must.Equal(t, "nodes", 2, len(found))
	for _, n := range found {
		must.Hold(t, (n.LastHeartbeat != nil) == (n.NodeID == "n2") && n.LastReading == nil, "%+v", n)
	}
}

// visible returns what a customer may see of the node n1.
func (db fixture) visible(t *testing.T, customer int64) []reading.Span {
	t.Helper()
	node := must.Get(db.VisibleNode(t.Context(), customer, "n1"))(t)
	return node.Visible
}

func (db fixture) openSpans(t *testing.T, customer int64) []reading.Span {
	t.Helper()
	return slices.DeleteFunc(db.visible(t, customer), func(s reading.Span) bool { return s.Channel != reading.Open })
}

// within reports a span of the open channel that does not begin and end between
// the times given; the last two are zero for a hold of today.
func within(t *testing.T, span reading.Span, fromAfter, fromBefore, untilAfter, untilBefore time.Time) {
	t.Helper()
	ends := span.Until.IsZero() && untilAfter.IsZero() || span.Until.After(untilAfter) && span.Until.Before(untilBefore)
	must.Hold(t, span.Channel == reading.Open && span.From.After(fromAfter) && span.From.Before(fromBefore) && ends,
		"visible from %v to %v, want from %v–%v to %v–%v", span.From, span.Until, fromAfter, fromBefore, untilAfter, untilBefore)
}

// TestHoldBeginsWithItsClaim shows contract 4.8: a new holder sees nothing older, a former one keeps what was theirs.
func TestHoldBeginsWithItsClaim(t *testing.T) {
	t.Parallel()
	db := open(t)
	t0 := db.now(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	t1 := db.now(t)
	within(t, one(t, "Anna sees", db.openSpans(t, db.anna)), t0, t1, time.Time{}, time.Time{})

	must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1"))
	t2 := db.now(t)
	db.claim(t, db.bruno, db.brunosRoom, "n1")
	t3 := db.now(t)
	within(t, one(t, "Bruno sees", db.openSpans(t, db.bruno)), t2, t3, time.Time{}, time.Time{})
	must.Do(t, db.DeleteSensor(t.Context(), db.bruno, "n1"))
	t4 := db.now(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	spans := db.openSpans(t, db.anna)
	if len(spans) != 2 {
		t.Fatalf("Anna sees %v", spans)
	}
	within(t, spans[0], t0, t1, t1, t2)
	within(t, spans[1], t4, db.now(t), time.Time{}, time.Time{})
}

func TestNewOwnerWhoWaitedForTheDeletionSeesNothingOlder(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	deletion := db.begin(t, `DELETE FROM sensors WHERE node_id = 'n1'`)
	db.sql(t, `INSERT INTO gateways (id, customer_id, name, code_hash, code_expires_at, public_key, enrolled_at)
		VALUES ('gw-a', @bruno, 'g', sha256('a'), now(), sha256('a'), now() - interval '1 day')`, pgx.NamedArgs{"bruno": db.bruno})
	db.claim(t, db.bruno, db.brunosRoom, "n1") // the sensor is still there for him: he gets his own channel alone
	must.Do(t, deletion.Commit(t.Context()))
	spans := db.visible(t, db.bruno)
	must.Hold(t, len(spans) == 1 && spans[0].Channel == reading.Channel(db.bruno), "Bruno sees %v", spans)
}

// TestIDThatAnotherHoldsIsForTheSignedChannelAlone shows contract 4.5, 4.9: it takes an enrolled
// gateway, and one that is revoked or waits for its code is none.
func TestIDThatAnotherHoldsIsForTheSignedChannelAlone(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	refused := func(what string) {
		t.Helper()
		must.Fail(t, what, must.Err(db.CreateSensor(t.Context(), db.bruno, sensorOf("n1", db.brunosRoom))), store.ErrSensorExists)
	}
	refused("without a gateway")
	_, _, err := db.CreateGateway(t.Context(), db.bruno, 0, "Waiting")
	must.Do(t, err)
	refused("with a gateway that waits for its code")
	must.Do(t, db.RevokeGateway(t.Context(), db.bruno, db.enrolled(t, db.bruno).ID))
	refused("with a revoked gateway")
	db.enrolled(t, db.bruno)
	db.claim(t, db.bruno, db.brunosRoom, "n1")
	spans := db.visible(t, db.bruno)
	must.Hold(t, len(spans) == 1 && spans[0].Channel == reading.Channel(db.bruno) && spans[0].Until.IsZero() && spans[0].From.IsZero(),
		"Bruno sees %v", spans)
	refused("his own again")
	hers := db.openSpans(t, db.anna)
	must.Hold(t, len(hers) == 1 && hers[0].Channel == reading.Open, "Anna sees %v", hers)
	// What happens to his says nothing about hers.
	must.Do(t, db.DeleteSensor(t.Context(), db.bruno, "n1"))
	nodes := []reading.Node{{ID: "n1"}, {Channel: reading.Channel(db.bruno), ID: "n1"}, {Channel: reading.Channel(db.anna), ID: "n1"}}
	got := must.Get(db.SensorStatuses(t.Context(), nodes))(t)
	annas := pipeline.SensorStatus{Owned: true, CustomerID: db.anna, RoomID: db.annasRoom, Budget: 1}
	held := annas
	held.HeldFrom = db.openSpans(t, db.anna)[0].From
	want := map[reading.Node]pipeline.SensorStatus{nodes[0]: held, nodes[1]: {Deleted: true}, nodes[2]: annas}
	must.Equal(t, "statuses", want, got)
	// Created again, it shows all of his channel.
	db.claim(t, db.bruno, db.brunosRoom, "n1")
	must.Equal(t, "after deletion and creation", spans, db.visible(t, db.bruno))
}

// TestNewHoldBeginsEmpty shows contract 4.8: what a former holder's node sent is in its state and its slots no more,
// however late it comes.
func TestNewHoldBeginsEmpty(t *testing.T) {
	t.Parallel()
	db := open(t)
	newest := func() float64 {
		t.Helper()
		return must.Get(db.NewestReadings(t.Context(), db.anna, []string{"n1"}))(t)["n1"].Temperature
	}
	slots := func() int { return db.count(t, `SELECT count(*) FROM node_slots`, nil) }
	before := db.now(t)
	db.heard(t, measured("n1", before, 20))
	must.Equal(t, "slots before it", 1, slots())
	db.claim(t, db.anna, db.annasRoom, "n1")
	rows := db.states(t)
	must.Hold(t, len(rows) == 1 && rows[0].MessageID == nil, "its row is %+v", rows)
	must.Equal(t, "it begins", 0.0, newest())
	must.Equal(t, "with slots", 0, slots())
	db.heard(t, measured("n1", before.Add(-time.Second), 21))
	must.Equal(t, "a reading from before it", 0.0, newest())
	must.Equal(t, "slots of the time before it", 0, slots())
	db.heard(t, measured("n1", db.now(t), 22))
	must.Equal(t, "newest", 22.0, newest())
	must.Equal(t, "its slots", 1, slots())
}

// TestAlertBelongsToTheHolderAtItsTime shows contract 6.6.
func TestAlertBelongsToTheHolderAtItsTime(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	hers := db.now(t)
	db.enrolled(t, db.anna)
	must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1")) // her hold ends
	db.claim(t, db.bruno, db.brunosRoom, "n1")
	db.claim(t, db.anna, db.annasRoom, "n1") // signed: he holds the id
	his := db.now(t)
	at := func(channel reading.Channel, message string, when time.Time) alert.Event {
		return alert.Exceeded(reading.Reading{Channel: channel, NodeID: "n1", MessageID: message, Time: when, Temperature: 60, Humidity: 40}, alert.Defaults())[0]
	}
	for _, c := range []struct {
		event alert.Event
		owned bool
		rows  int
	}{
		{at(reading.Open, "late", hers), true, 1},
		{at(reading.Open, "live", his), true, 1},
		{at(reading.Open, "live", his), true, 0},
		{at(reading.Channel(db.anna), "live", his), true, 1}, // another node
		{at(reading.Channel(db.bruno), "live", his), true, 1},
		{at(reading.Open, "before anybody's", hers.Add(-time.Hour)), false, 0},
		{at(reading.Open, "live", his.Add(time.Minute)), true, 0},    // a copy, by another gateway
		{at(reading.Open, "live", his.Add(11*time.Minute)), true, 1}, // the node has counted on
	} {
		must.Equal(t, c.event.MessageID+" is owned", c.owned, db.insert(t, c.event, c.rows))
	}
	for customer, want := range map[int64]int{db.anna: 2, db.bruno: 3} {
		all := must.Get(db.AlertHistory(t.Context(), customer, incidents.AlertQuery{PageRequest: store.PageRequest{Limit: 10}}))(t)
		must.Equal(t, fmt.Sprintf("alerts of customer %d", customer), want, len(all.Items))
	}
}

// TestPredictionsOfChannelsDoNotMeet shows contract 4.8.
func TestPredictionsOfChannelsDoNotMeet(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	db.enrolled(t, db.bruno)
	db.claim(t, db.bruno, db.brunosRoom, "n1")
	now := db.now(t)
	for channel, owner := range map[reading.Channel]int64{reading.Open: db.anna, reading.Channel(db.anna): db.anna, reading.Channel(db.bruno): db.bruno} {
		n := detection(0, true)
		n.Channel, n.Time = channel, now
		db.detect(t, db.anna+db.bruno-owner, n, false) // who may not see the reading
		db.detect(t, owner, n, true)
		db.detect(t, owner, n, false) // delivered again
	}
	for customer, want := range map[int64]int{db.anna: 2, db.bruno: 1} { // she holds the open channel
		listed := must.Get(db.Predictions(t.Context(), customer, learning.PredictionFilter{PageRequest: store.PageRequest{Limit: 10}}))(t)
		must.Equal(t, fmt.Sprintf("predictions of customer %d", customer), want, len(listed.Items))
		must.Equal(t, fmt.Sprintf("counted of customer %d", customer), want, must.Get(db.PredictionStats(t.Context(), customer))(t).Total)
	}
	his := one(t, "Bruno's", must.Get(db.Predictions(t.Context(), db.bruno, learning.PredictionFilter{PageRequest: store.PageRequest{Limit: 10}}))(t).Items)
	must.Fail(t, "another's", must.Err(db.ValidatePrediction(t.Context(), db.anna, his.ID, learning.FeedbackOK)), store.ErrNoPrediction)
	recorded := must.Get(db.RecordPrediction(t.Context(), db.bruno, learning.NewPrediction{SensorID: "n1", Time: now}))(t)
	must.Fail(t, "another's of another model", must.Err(db.Prediction(t.Context(), db.anna, recorded.ID)), store.ErrNoPrediction)
}

// ingest stores a reading of n1 as functions/ingest does.
func (db fixture) ingest(t *testing.T, channel int64, at time.Time, temperature float64) reading.Reading {
	t.Helper()
	r := measured("n1", reading.TruncateTime(at), temperature)
	r.Channel = reading.Channel(channel)
	if channel != 0 {
		db.sql(t, store.SignSensor, pgx.NamedArgs{"channel": channel, "node": r.NodeID, "at": r.Time, "gateway": "gw-a"})
	}
	db.heard(t, r)
	return r
}

// shown returns the temperature that Anna's overview shows of n1, and her sensor.
func (db fixture) shown(t *testing.T) (float64, accounts.Sensor) {
	t.Helper()
	live := one(t, "live sensors", must.Get(db.LiveSensors(t.Context(), db.anna))(t))
	if live.Temperature == nil {
		t.Fatalf("no temperature: %+v", live)
	}
	return *live.Temperature, must.Get(db.Sensor(t.Context(), db.anna, "n1"))(t)
}

// TestHistoryStaysVisibleAfterTheGatewayIsGone: all of a customer's own channel is theirs,
// from before the first enrolment until long after the gateway was revoked and removed.
func TestHistoryStaysVisibleAfterTheGatewayIsGone(t *testing.T) {
	t.Parallel()
	db := open(t)
	gateway := db.enrolled(t, db.anna)
	db.ingest(t, db.anna, gateway.EnrolledAt.Add(-40*24*time.Hour), 20)
	db.claim(t, db.anna, db.annasRoom, "n1")
	all := []reading.Span{{Channel: reading.Channel(db.anna)}}
	must.Equal(t, "readings from before the enrolment", all, db.visible(t, db.anna))
	must.Do(t, db.RevokeGateway(t.Context(), db.anna, gateway.ID))
	db.sql(t, `UPDATE gateways SET enrolled_at = enrolled_at - interval '2 years', revoked_at = revoked_at - interval '2 years'`, nil)
	for range accounts.MaxEnrolmentCodes { // removes old ones
		_, _, err := db.CreateGateway(t.Context(), db.bruno, 0, "another")
		must.Do(t, err)
	}
	_, _, err := db.CreateGateway(t.Context(), db.bruno, 0, "one more")
	must.Fail(t, "one more code", err, store.ErrTooManyGateways)
	must.Fail(t, "a node of another customer", must.Err(db.VisibleNode(t.Context(), db.bruno, "n1")), store.ErrNoSensor)
	must.Equal(t, "gateways left", 0, db.count(t, `SELECT count(*) FROM gateways WHERE id = @id`, pgx.NamedArgs{"id": gateway.ID}))
	must.Equal(t, "after the gateway is gone", all, db.visible(t, db.anna))
	temperature, _ := db.shown(t)
	must.Equal(t, "the overview shows", 20.0, temperature)
}

// TestUnenrolledGatewayCannotSpeakForASignedSensor: from the first signed reading on, what
// an unenrolled gateway sends under the id is stored and reported, and nothing else.
func TestUnenrolledGatewayCannotSpeakForASignedSensor(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	db.enrolled(t, db.anna)
	start := db.now(t)
	db.ingest(t, 0, start, 21)
	temperature, sensor := db.shown(t)
	must.Hold(t, temperature == 21 && !sensor.Signed, "open: %v, %+v", temperature, sensor)
	db.ingest(t, db.anna, start.Add(time.Second), 22)
	temperature, sensor = db.shown(t)
	must.Hold(t, temperature == 22 && sensor.Signed && !sensor.AlsoUnenrolled, "signed: %v, %+v", temperature, sensor)
	forged := db.ingest(t, 0, start.Add(2*time.Second), 99)
	temperature, sensor = db.shown(t)
	must.Hold(t, temperature == 22 && sensor.AlsoUnenrolled, "after a forged reading: %v, %+v", temperature, sensor)
	must.Do(t, db.Judge(t.Context(), incidents.Judged{Reading: forged, Arrived: forged.Time, Defaults: alert.Defaults()}))
	must.Equal(t, "excursions", 0, len(db.excursions(t, db.anna, incidents.ExcursionQuery{})))
	must.Equal(t, "its alert is owned", false, db.insert(t, alert.Exceeded(forged, alert.Defaults())[0], 0))
	late := forged
	late.Time = start                                          // from before the signed reading
	db.insert(t, alert.Exceeded(late, alert.Defaults())[0], 1) // of before
	nodes := must.Get(db.RoomNodes(t.Context(), db.anna, db.annasRoom, nil))(t)
	must.Hold(t, len(nodes) == 1 && nodes[0].Channel == reading.Channel(db.anna), "detection compares with %+v", nodes)
	must.Fail(t, "the id, which Anna still holds", must.Err(db.CreateSensor(t.Context(), db.bruno, sensorOf("n1", db.brunosRoom))),
		store.ErrSensorExists)
}

// TestMemoryMovesWithTheSensor: an incident goes on when its sensor becomes signed, though
// detection sees the first signed reading before ingest does.
func TestMemoryMovesWithTheSensor(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	start := db.now(t)
	judge := func(channel int64, at time.Time, temperature float64) {
		t.Helper()
		r := measured("n1", reading.TruncateTime(at), temperature)
		r.Channel = reading.Channel(channel)
		must.Do(t, db.Judge(t.Context(), incidents.Judged{Reading: r, GatewayID: "gw-a", Arrived: at, Defaults: alert.Defaults()}))
	}
	judge(0, start, 60)
	e := hot("open")
	e.Time = start
	db.insert(t, e, 1)
	must.Get(db.Act(t.Context(), db.anna, must.Get(db.Lasting(t.Context(), db.anna, nil, start))(t)[0].ID, incidents.Action{Event: incident.EventTaken, By: "anna12"}, start))(t)
	must.Equal(t, "active alerts once it is taken", 0, len(must.Get(db.active(t.Context(), db.anna))(t)))
	judge(db.anna, start.Add(time.Second), 61)
	must.Equal(t, "active alerts once it is signed", 0, len(must.Get(db.active(t.Context(), db.anna))(t)))
	got := one(t, "excursions", db.excursions(t, db.anna, incidents.ExcursionQuery{}))
	must.Hold(t, got.Lasting && got.Peak == 61 && got.StartTime.Equal(reading.TruncateTime(start)), "excursion %+v", got)
	must.Equal(t, "memories stayed", 0, db.count(t, `SELECT count(*) FROM rule_memory WHERE channel = 0`, nil))
	judge(db.anna, start.Add(2*time.Second), 20)
	must.Equal(t, "lasts", false, one(t, "excursions", db.excursions(t, db.anna, incidents.ExcursionQuery{})).Lasting)
	must.Equal(t, "audit entries", 1, db.count(t, `
		SELECT count(*) FROM audit_log
		WHERE customer_id = @anna AND actor = 'gateway:gw-a' AND operation = 'signSensor' AND subject = 'sensor:n1'`, pgx.NamedArgs{"anna": db.anna}))
}

// TestSensorIsSetBackByHand: a signed sensor listens to the open channel again from then
// on, until the next signed reading. What came while it was signed stays hidden.
func TestSensorIsSetBackByHand(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	signed := db.now(t)
	db.ingest(t, db.anna, signed, 22)
	db.ingest(t, 0, db.now(t), 99)
	before := db.now(t)
	must.Equal(t, "signed", false, must.Get(db.SetBackSensor(t.Context(), db.anna, "n1", 0))(t).Signed)
	after := db.now(t)
	spans := db.openSpans(t, db.anna)
	if len(spans) != 2 || !spans[0].Until.Equal(reading.TruncateTime(signed)) {
		t.Fatalf("visible %v", spans)
	}
	within(t, spans[1], before, after, time.Time{}, time.Time{})
	temperature, _ := db.shown(t)
	must.Hold(t, temperature == 22, "shows %v", temperature)
	db.ingest(t, db.anna, signed.Add(time.Millisecond), 23) // a backlog
	db.ingest(t, 0, db.now(t), 24)
	temperature, sensor := db.shown(t)
	must.Hold(t, temperature == 24 && !sensor.Signed, "set back: %v, %+v", temperature, sensor)
	must.Equal(t, "signed again", false, must.Get(db.SetBackSensor(t.Context(), db.anna, "n1", 0))(t).Signed)
	db.ingest(t, db.anna, db.now(t), 25)
	temperature, sensor = db.shown(t)
	must.Hold(t, temperature == 25 && sensor.Signed, "signed again: %v, %+v", temperature, sensor)
	// Deleted and created again, its open time ends where it was signed.
	end := db.openSpans(t, db.anna)[1].Until
	must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1"))
	db.claim(t, db.anna, db.annasRoom, "n1") // signed at once: her gateways report it
	spans = db.openSpans(t, db.anna)
	must.Hold(t, len(spans) == 2 && spans[1].Until.Equal(end), "visible %v, want an end at %v", spans, end)
	// Another may hold the id now. Then hers cannot be set back.
	db.claim(t, db.bruno, db.brunosRoom, "n1")
	must.Fail(t, "while another holds the id", must.Err(db.SetBackSensor(t.Context(), db.anna, "n1", 0)), store.ErrSensorExists)
	must.Fail(t, "no sensor", must.Err(db.SetBackSensor(t.Context(), db.anna, "n2", 0)), store.ErrNoSensor)
}

// TestKeyUseWaitsForNobody records the use of two keys, of which a transaction that goes on holds one.
func TestKeyUseWaitsForNobody(t *testing.T) {
	t.Parallel()
	db := open(t)
	var ids []int64
	for _, name := range []string{"held", "used"} {
		var id int64
		must.Do(t, db.pool.QueryRow(t.Context(), `
			INSERT INTO api_keys (customer_id, name, prefix, hash, scope)
			VALUES ($1, $2::text, 'cold_1234', sha256($2::text::bytea), 'read')
			RETURNING id`, db.anna, name).Scan(&id))
		ids = append(ids, id)
	}
	holder := must.Get(db.pool.Begin(t.Context()))(t)
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	must.Get(holder.Exec(t.Context(), `DELETE FROM api_keys WHERE id = $1`, ids[0]))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // for ever, did it wait
	defer cancel()
	must.Do(t, db.RecordAPIKeyUses(ctx, ids))
	var used []string
	must.Do(t, db.pool.QueryRow(t.Context(), `SELECT array_agg(name) FROM api_keys WHERE last_used_at IS NOT NULL`).Scan(&used))
	must.Equal(t, "recorded", []string{"used"}, used)
}
