package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
)

func TestMain(m *testing.M) {
	if address := os.Getenv("JUDGE_WORKER"); address != "" {
		os.Exit(judgeWorker(address))
	}
	os.Exit(pgtest.Main(m))
}

// instant is a time of readings in these tests.
func instant() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// fixture is a database with two customers, a room each.
type fixture struct {
	pgtest.Stores

	pool        *pgxpool.Pool
	anna, bruno int64 // customers
	annasRoom   int64
	brunosRoom  int64
}

func open(tb testing.TB) fixture {
	tb.Helper()
	_, db := openTraced(tb, nil)
	return db
}

func openWith(t *testing.T, ids ...string) fixture {
	t.Helper()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, ids...)
	return db
}

// openTraced is open with a tracer of what the store sends, or nil, and the address of the database.
func openTraced(tb testing.TB, tracer pgx.QueryTracer) (string, fixture) {
	tb.Helper()
	address := pgtest.URL(tb)
	config := must.Get(pgxpool.ParseConfig(address))(tb)
	if config.ConnConfig.Tracer = tracer; tracer != nil {
		config.MaxConns = 10 // also where the test waits for many sessions at once
	}
	pool := must.Get(pgxpool.NewWithConfig(tb.Context(), config))(tb)
	tb.Cleanup(pool.Close)
	db := fixture{Stores: pgtest.NewStores(pool), pool: pool}
	db.anna, db.bruno = db.customer(tb, "anna12"), db.customer(tb, "bruno1")
	db.annasRoom, db.brunosRoom = db.room(tb, db.anna), db.room(tb, db.bruno)
	return address, db
}

func (db fixture) customer(tb testing.TB, name string) int64 {
	tb.Helper()
	created := must.Get(db.CreateCustomer(tb.Context(), accounts.NewCustomer{
		Email: name + "@example.com", Username: name, PasswordHash: "hash of " + name,
	}))(tb)
	return created.ID
}

func (db fixture) room(tb testing.TB, customer int64) int64 {
	tb.Helper()
	created := must.Get(db.CreateRoom(tb.Context(), customer, "Room"))(tb)
	return created.ID
}

// roomWith makes a room of Anna's with sensors.
func (db fixture) roomWith(t *testing.T, ids ...string) int64 {
	t.Helper()
	room := db.room(t, db.anna)
	db.sensor(t, db.anna, room, ids...)
	return room
}

// sensor makes sensors whose hold of the open channel goes back to the one before:
// readings of these tests are older than the sensors. See claim.
func (db fixture) sensor(t *testing.T, customer, room int64, ids ...string) {
	t.Helper()
	for _, id := range ids {
		db.claim(t, customer, room, id)
		db.sql(t, `
			UPDATE open_holds
			SET held_from = COALESCE((SELECT max(held_until) FROM open_holds WHERE node_id = @id AND held_until < 'infinity'), '-infinity')
			WHERE customer_id = @customer AND node_id = @id AND held_until = 'infinity'`, pgx.NamedArgs{"customer": customer, "id": id})
		db.sql(t, `DELETE FROM node_state WHERE node_id = @id AND channel = 0`, pgx.NamedArgs{"id": id})
	}
}

// move puts a sensor of Anna's into another room.
func (db fixture) move(t *testing.T, id string, room int64) {
	t.Helper()
	must.Get(db.UpdateSensor(t.Context(), db.anna, id, accounts.SensorChange{Name: "Rack", Type: "T", RoomID: room}))(t)
}

// claim makes a sensor whose hold of the open channel begins now.
func (db fixture) claim(t *testing.T, customer, room int64, id string) {
	t.Helper()
	must.Get(db.CreateSensor(t.Context(), customer, sensorOf(id, room)))(t)
}

// openNodes are nodes of the open channel.
func openNodes(ids ...string) (nodes []reading.Node) {
	for _, id := range ids {
		nodes = append(nodes, reading.Node{ID: id})
	}
	return nodes
}

func sensorOf(id string, room int64) accounts.NewSensor {
	return accounts.NewSensor{ID: id, Name: "Rack", Type: "ESP32-DHT22", RoomID: room}
}

// measured is a reading of the open channel.
func measured(node string, at time.Time, temperature float64) reading.Reading {
	message := fmt.Sprint(temperature, at.UnixMicro())
	return reading.Reading{NodeID: node, MessageID: message, Time: at, Temperature: temperature, Humidity: 40}
}

// heard stores readings as functions/ingest does, each by itself.
func (db fixture) heard(t *testing.T, all ...reading.Reading) {
	t.Helper()
	db.heardBy(t, "", all...)
}

// heardBy is heard through a gateway.
func (db fixture) heardBy(t *testing.T, gateway string, all ...reading.Reading) {
	t.Helper()
	for _, r := range all {
		must.Do(t, db.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r, GatewayID: gateway}}))
	}
}

// sql runs a statement as a careless writer would, past the store: an argument that is left out is NULL.
func (db fixture) sql(t *testing.T, statement string, args pgx.NamedArgs) {
	t.Helper()
	must.Get(db.pool.Exec(t.Context(), statement, args))(t)
}

func (db fixture) count(t *testing.T, query string, args pgx.NamedArgs) (n int) {
	t.Helper()
	must.Do(t, db.pool.QueryRow(t.Context(), query, args).Scan(&n))
	return n
}

// begin runs a statement in a transaction that is rolled back when the test ends.
func (db fixture) begin(t *testing.T, statement string) pgx.Tx {
	t.Helper()
	tx := must.Get(db.pool.Begin(t.Context()))(t)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	must.Get(tx.Exec(t.Context(), statement))(t)
	return tx
}

// one is the only one of all there are.
func one[T any](t *testing.T, what string, all []T) T {
	t.Helper()
	if len(all) != 1 {
		t.Fatalf("%s: %d, want one: %+v", what, len(all), all)
	}
	return all[0]
}

// each is a value of each of all.
func each[T, V any](all []T, value func(T) V) (values []V) {
	for _, one := range all {
		values = append(values, value(one))
	}
	return values
}

// winners is how many of twenty tries at once have no error; the others have the one that is given.
func winners(t *testing.T, others error, try func(i int) error) int {
	t.Helper()
	var won atomic.Int32
	var trying sync.WaitGroup
	for i := range 20 {
		trying.Go(func() {
			if err := try(i); err == nil {
				won.Add(1)
			} else {
				must.Fail(t, "one that did not win", err, others)
			}
		})
	}
	trying.Wait()
	return int(won.Load())
}

// wait returns once so many sessions wait for what others have not committed.
func (db fixture) wait(t *testing.T, sessions int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for waiting := 0; waiting < sessions; {
		must.Do(t, db.pool.QueryRow(ctx, `
			SELECT count(*)
			FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting))
	}
}

// deadlocks counts the statements that PostgreSQL ends because of one.
type deadlocks struct{ atomic.Int64 }

func (*deadlocks) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (d *deadlocks) TraceQueryEnd(_ context.Context, _ *pgx.Conn, end pgx.TraceQueryEndData) {
	if pgErr, ok := errors.AsType[*pgconn.PgError](end.Err); ok && pgErr.Code == "40P01" {
		d.Add(1)
	}
}

// TestRoomsAreLockedBeforeSensors moves two sensors into each other's rooms while both rooms are being deleted. The
// deletions stand first in line for the rooms: whoever took its sensor before it asks for the room closes a circle.
func TestRoomsAreLockedBeforeSensors(t *testing.T) {
	t.Parallel()
	var counted deadlocks
	_, db := openTraced(t, &counted)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	first, second := db.annasRoom, db.roomWith(t, "n2")

	holder := db.begin(t, `SELECT FROM server_rooms FOR UPDATE`)
	var group sync.WaitGroup
	for _, room := range []int64{first, second} {
		group.Go(func() {
			must.Fail(t, fmt.Sprint("delete room ", room), db.DeleteRoom(t.Context(), db.anna, room), nil)
		})
	}
	db.wait(t, 2)
	for node, room := range map[string]int64{"n1": second, "n2": first} {
		group.Go(func() {
			_, err := db.UpdateSensor(t.Context(), db.anna, node, accounts.SensorChange{Name: "N", Type: "T", RoomID: room})
			must.Hold(t, errors.Is(err, store.ErrNotFound), "move %s: %v", node, err)
		})
	}
	db.wait(t, 4)
	must.Do(t, holder.Commit(t.Context()))
	group.Wait()
	n := counted.Load()
	must.Hold(t, n == 0, "%d deadlocks", n)
}

// TestDeadlockIsTriedAgain makes the deletion of a room the victim of one. Contract 1.9.
func TestDeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	// Whoever looks for a deadlock first is its victim: not this one.
	other := db.begin(t, `SET LOCAL deadlock_timeout = '1min'; SELECT FROM sensors FOR UPDATE`)
	done := make(chan error, 1)
	go func() { done <- db.DeleteRoom(t.Context(), db.anna, db.annasRoom) }()
	db.wait(t, 1)
	must.Get(other.Exec(t.Context(), `SELECT FROM server_rooms WHERE id = $1 FOR UPDATE`, db.annasRoom))(t)
	must.Do(t, other.Commit(t.Context()))
	must.Do(t, <-done)
}

// TestSerialisationFailureIsTriedAgain has the database end every insertion and deletion twice before it lets one
// through, in each way that the store runs SQL. Contract 1.9.
func TestSerialisationFailureIsTriedAgain(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sql(t, `CREATE SEQUENCE tries`, nil)
	db.sql(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
		    IF nextval('tries') % 3 <> 0 THEN
		        RAISE EXCEPTION 'could not serialize access' USING ERRCODE = 'serialization_failure';
		    END IF;
		    RETURN COALESCE(NEW, OLD);
		END $$`, nil)
	for _, table := range []string{"server_rooms", "sensors", "alerts"} {
		db.sql(t, `CREATE TRIGGER refuse BEFORE INSERT OR DELETE ON `+table+` FOR EACH ROW EXECUTE FUNCTION refuse()`, nil)
	}
	must.Get(db.CreateRoom(t.Context(), db.anna, "one row"))(t)
	must.Get(db.CreateSensor(t.Context(), db.anna, sensorOf("n2", db.annasRoom)))(t)                                           // a transaction
	must.Get(db.InsertAlert(t.Context(), alert.Event{NodeID: "n1", MessageID: "m", Time: instant(), Type: alert.Humidity}))(t) // a scanned row
	must.Do(t, db.DeleteRoom(t.Context(), db.bruno, db.brunosRoom))                                                            // a statement

	db.sql(t, `ALTER SEQUENCE tries INCREMENT 3 RESTART 1`, nil) // never through
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	began := time.Now()
	_, err := db.CreateRoom(ctx, db.anna, "never")
	pauses := time.Since(began)
	must.Hold(t, pauses >= 30*time.Millisecond, "tried three times within %s", pauses)
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	must.Hold(t, ok && pgErr.Code == "40001", "got %v, want the failure itself", err)
	must.Equal(t, "attempts", 3, (db.count(t, `SELECT last_value FROM tries`, nil)+2)/3)
}

// TestAuditBelongsToItsTransaction shows contract 10.12.
func TestAuditBelongsToItsTransaction(t *testing.T) {
	t.Parallel()
	db := open(t)
	rename := func(fail error) error {
		return db.InTx(t.Context(), func(inTx *store.DB) error {
			tx := accounts.New(inTx)
			before, err := tx.Room(t.Context(), db.anna, db.annasRoom)
			if err != nil {
				return err
			}
			after, err := tx.UpdateRoom(t.Context(), db.anna, db.annasRoom, accounts.RoomChange{Name: "Renamed"})
			if err != nil {
				return err
			}
			// Within it another transaction of the store's is a part.
			if _, err := tx.CreateSensor(t.Context(), db.anna, sensorOf("n1", db.annasRoom)); err != nil {
				return err
			}
			err = tx.Audit(t.Context(), accounts.AuditEntry{
				CustomerID: db.anna, Actor: "customer:1", Operation: "update-room", Subject: "room:1", RequestID: "r", Before: before, After: after,
			})
			return errors.Join(err, fail)
		})
	}
	failed := errors.New("after the change")
	must.Fail(t, "a transaction that fails", rename(failed), failed)
	room := must.Get(db.Room(t.Context(), db.anna, db.annasRoom))(t)
	must.Hold(t, room.Name == "Room" && db.count(t, `SELECT count(*) FROM audit_log`, nil) == 0, "left %+v", room)
	must.Do(t, rename(nil))
	must.Equal(t, "entries", 1, db.count(t, `SELECT count(*) FROM audit_log WHERE before->>'Name' = 'Room' AND after->>'Name' = 'Renamed' AND customer_id = @anna`, map[string]any{"anna": db.anna}))
	must.Fail(t, "a sensor of the transaction", func() error {
		_, err := db.CreateSensor(t.Context(), db.anna, sensorOf("n1", db.annasRoom))
		return err
	}(), store.ErrSensorExists)
}

// asking is a context that says when somebody waits under it.
type asking struct {
	context.Context //nolint:containedctx // it is one

	asked func()
}

func (a asking) Done() <-chan struct{} {
	a.asked()
	return a.Context.Done()
}

// TestLongAnswersTakeTurns has an account ask for more long answers than may be read at once: another gets
// the next one. Contract 1.9.
func TestLongAnswersTakeTurns(t *testing.T) {
	t.Parallel()
	config := must.Get(pgxpool.ParseConfig(pgtest.URL(t)))(t)
	config.MaxConns = 4 // of which one is for a long answer
	pool := must.Get(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(pool.Close)
	db := store.New(pool)
	table := pgreadings.New(db, nil, time.Now)
	var served []int64
	var requests sync.WaitGroup
	free := make(chan struct{})
	ask := func(account int64, wait <-chan struct{}) {
		asked := make(chan struct{})
		ask := sync.OnceFunc(func() { close(asked) })
		ctx := fairqueue.WithAccount(asking{t.Context(), ask}, account)
		requests.Go(func() {
			_, err := store.Long(ctx, db, func(pgx.CollectableRow) (int, error) {
				ask()
				served = append(served, account)
				<-wait
				return 0, nil
			}, `SELECT 1`, nil, "long answer")
			must.Fail(t, "long answer", err, nil)
		})
		<-asked
	}
	over := make(chan struct{})
	close(over)
	ask(1, free)
	beside := func(what string, read func(context.Context) error) {
		t.Helper()
		err := context.DeadlineExceeded // of what is read before the turn, on a busy machine
		for within := time.Millisecond; errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, fairqueue.ErrNoSlot); within *= 2 {
			soon, cancel := context.WithTimeout(fairqueue.WithAccount(t.Context(), 1), within)
			err = read(soon)
			cancel()
		}
		must.Fail(t, what, err, fairqueue.ErrNoSlot)
	}
	beside("statistics beside it", func(soon context.Context) error {
		return must.Err(table.Stats(soon, readings.NodeRef{ID: "n"}, time.Now(), []time.Time{{}}))
	})
	beside("a count beside it", func(soon context.Context) error {
		return must.Err(accounts.New(db).AuditLog(1, accounts.AuditQuery{}).Total(soon))
	})
	for _, account := range []int64{1, 1, 1, 2} {
		ask(account, over)
	}
	close(free)
	requests.Wait()
	must.Equal(t, "accounts that were answered", []int64{1, 1, 2, 1, 1}, served)
}

// roundTrips counts the queries and batches that a pool sends.
type roundTrips struct{ atomic.Int64 }

func (r *roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.Add(1)
	return ctx
}
func (*roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *roundTrips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	r.Add(1)
	return ctx
}
func (*roundTrips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*roundTrips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// BenchmarkJudge judges readings of a node whose rules remember something, and says
// how often the database is asked for each, begin and commit included.
func BenchmarkJudge(b *testing.B) {
	var trips roundTrips
	_, db := openTraced(b, &trips)
	must.Get(db.CreateSensor(b.Context(), db.anna, sensorOf("n1", db.annasRoom)))(b)
	must.Get(db.pool.Exec(b.Context(), `UPDATE open_holds SET held_from = '-infinity'`))(b)
	trips.Store(0)
	judgements := 0
	for b.Loop() {
		judgements++
		before := incident.Point{Time: instant().Add(time.Duration(judgements-1) * 30 * time.Second), Temperature: 51, Humidity: 40}
		must.Do(b, db.Judge(b.Context(), judged("n1", judgements*30, 51, before)))
	}
	b.ReportMetric(float64(trips.Load())/float64(judgements), "round-trips/op")
}

// BenchmarkJudgeBacklog judges what a node measured in an outage of twelve hours and sends
// when it is over, behind a live reading: within its limits, and hot throughout.
func BenchmarkJudgeBacklog(b *testing.B) {
	const hours = 12
	for name, temperature := range map[string]float64{"quiet": 20, "hot": 51} {
		b.Run(name, func(b *testing.B) {
			db := open(b)
			must.Get(db.CreateSensor(b.Context(), db.anna, sensorOf("n1", db.annasRoom)))(b)
			must.Get(db.pool.Exec(b.Context(), `UPDATE open_holds SET held_from = '-infinity'`))(b)
			end := hours * 3600
			live := judged("n1", end, temperature)
			must.Do(b, db.UpdateNodeStates(b.Context(), []pipeline.NodeReading{{Reading: live.Reading}}))
			second := 0
			for _, j := range []incidents.Judged{judged("n1", 0, temperature), live} {
				must.Do(b, db.Judge(b.Context(), j))
			}
			for b.Loop() {
				second = (second + 30) % end
				late := judged("n1", second, temperature)
				late.Arrived = live.Arrived
				must.Do(b, db.Judge(b.Context(), late))
			}
		})
	}
}

// BenchmarkIncidentsPage reads what a page of 2,000 sensors shows: an incident of 200 of them,
// and the newest of 20,000.
func BenchmarkIncidentsPage(b *testing.B) {
	db := open(b)
	for _, statement := range []string{
		`INSERT INTO sensors (node_id, customer_id, room_id, name, type, signed_from)
		SELECT 'n' || i, @anna, @room, 'Rack', 'T', '-infinity' FROM generate_series(0, 1999) AS i`,
		`INSERT INTO node_state (channel, node_id, message_id, timestamp, temperature, temperature_at, humidity, humidity_at, gateway_id, usual_interval_s)
		SELECT @anna, 'n' || i, 'm', at, 22, at, 40, at, 'gw-' || i % 20, 30
		FROM generate_series(0, 1999) AS i, LATERAL (SELECT @now::timestamptz - make_interval(mins => i / 100) AS at) AS t`,
		`INSERT INTO room_incidents (customer_id, room_id, cause, severity, actual, start_time, end_time, lasting, breaking, late, parts)
		SELECT @anna, @room, 'too_hot', 'critical', true, @now::timestamptz - make_interval(mins => 20 * i), @now::timestamptz - make_interval(mins => 20 * i - 5), i = 0, i = 0, false, 1
		FROM generate_series(0, 19999) AS i`,
		`INSERT INTO excursions (customer_id, kind, channel, node_id, room_id, rule_id, specified, quantity, direction, limit_value, severity, start_time, end_time,
		    lasting, peak, peak_time, resolution, incident_id)
		SELECT @anna, 'threshold', @anna, 'n' || n.k, @room, 1, true, 'temperature', 'above', 50, 'critical', i.start_time, i.end_time,
		    i.lasting, 55, i.start_time, CASE WHEN i.lasting THEN '' ELSE 'cleared' END, i.id
		FROM room_incidents i, generate_series(0, CASE WHEN i.lasting THEN 199 ELSE 0 END) AS n (k)`,
		`INSERT INTO alerts (customer_id, channel, sensor_id, alert_type, message, timestamp, message_id, value, threshold)
		SELECT @anna, @anna, 'n' || i % 2000, 'temperature', 'High', @now::timestamptz - make_interval(secs => i), i::text, 55, 50 FROM generate_series(0, 99999) AS i`,
	} {
		args := pgx.NamedArgs{"anna": db.anna, "room": db.annasRoom, "now": instant()}
		must.Get(db.pool.Exec(b.Context(), statement, args))(b)
	}
	must.Get(db.pool.Exec(b.Context(), `ANALYZE`))(b)
	for b.Loop() {
		lasting, err := db.Lasting(b.Context(), db.anna, nil, instant())
		if err != nil || len(lasting) != 1 || lasting[0].Now.Sensors != 200 {
			b.Fatal(len(lasting), err)
		}
		must.Equal(b, "unseen", 19_999, must.Get(db.Unseen(b.Context(), db.anna))(b))
		page, err := db.Incidents(b.Context(), db.anna, incidents.IncidentQuery{PageRequest: store.PageRequest{Limit: 50}}, instant())
		if err != nil || len(page.Items) != 50 || page.Total != 20_000 {
			b.Fatal(page.Total, err)
		}
	}
}

// BenchmarkNodeStates stores the readings of nodes that send every 30 seconds, as ingest does, at the sizes of
// docs/operations.md. The last day of each node is there before. It prints the processor time of PostgreSQL's
// sessions, without the server's background work and without full pages in the log; what the tables of state take,
// how many times what their rows need, which share of the updates touched no index (HOT); and what a reading costs
// in write-ahead log. Vacuum runs every simulated ten minutes, as autovacuum would. On Linux, alone:
//
//	go test ./shared/store -run '^$' -bench NodeStates -benchtime 1x
func BenchmarkNodeStates(b *testing.B) {
	const perBatch, readings = 250, 120_000
	for _, nodes := range []int{1000, 20_000, 100_000} {
		b.Run(fmt.Sprintf("%d nodes", nodes), func(b *testing.B) {
			db := open(b)
			table := pgreadings.New(db.DB, nil, time.Now)
			ask := func(sql string) (value float64) {
				must.Do(b, db.pool.QueryRow(b.Context(), sql).Scan(&value))
				return value
			}
			execute := func(sql string) { must.Get(db.pool.Exec(b.Context(), sql))(b) }
			at, kept := instant(), 0
			round := func() {
				at = at.Add(30 * time.Second)
				for first := 0; first < nodes; first += perBatch {
					batch := make([]pipeline.NodeReading, perBatch)
					for i := range batch {
						batch[i].Reading = reading.Reading{
							NodeID: fmt.Sprintf("esp32-%06x", first+i), MessageID: fmt.Sprintf("%08x", kept),
							Time: at.Add(time.Duration(first+i) * 29 * time.Second / time.Duration(nodes)), Temperature: 20 + float64(kept%97)/10, Humidity: 40 + float64(kept%53)/10,
						}
						kept++
					}
					must.Get(db.StoreReadings(b.Context(), batch, table.Insert))(b)
				}
			}
			round()
			execute(`
				INSERT INTO node_slots
				SELECT channel, node_id, slot, timestamp - interval '1 day', 20, 25, 40, 45, timestamp - interval '1 day', 22, 42
				FROM generate_series(0, 143) AS slot, node_state ORDER BY slot, node_id ON CONFLICT DO NOTHING`)
			execute(`VACUUM ANALYZE`)
			execute(`CHECKPOINT`)
			const written, used = `SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::float8`, `
				SELECT sum((stat[12]::float8 + stat[13]::float8) * 1e4) FROM (
				    SELECT string_to_array(split_part(pg_read_file('/proc/' || pid || '/stat'), ') ', 2), ' ') AS stat
				    FROM pg_stat_activity WHERE datname = current_database()) AS sessions`
			wal, processor, before := ask(written), ask(used), kept
			for b.Loop() {
				for range max(1, readings/nodes) {
					if round(); at.Minute()%10 == 0 && at.Second() == 0 {
						execute(`VACUUM node_state, node_slots`)
					}
				}
			}
			stored := float64(kept - before)
			b.ReportMetric((ask(used)-processor)/stored, "PostgreSQL-µs/reading")
			b.ReportMetric((ask(written)-wal)/stored, "WAL-B/reading")
			execute(`SELECT pg_stat_force_next_flush()`)
			for _, table := range []string{"node_state", "node_slots"} {
				b.ReportMetric(ask(`SELECT n_tup_hot_upd::float8 / n_tup_upd FROM pg_stat_user_tables WHERE relname = '`+table+`'`), "HOT-"+table)
				b.ReportMetric(ask(`SELECT pg_total_relation_size('`+table+`')::float8`)/1e6, "MB-"+table)
				b.ReportMetric(ask(`SELECT pg_relation_size('`+table+`') / sum(pg_column_size(t.*) + 4)::float8 FROM `+table+` AS t`), "bloat-"+table)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
