package pgpubsub_test

import (
	"fmt"
	neturl "net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"

	"coldaisle.dev/shared/pgtest"
)

// heap is what the process holds after a collection, in MiB.
func heap() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / (1 << 20)
}

// TestBacklogOfAMillion puts a million messages into the table, as an outage of
// one of two subscribers would, and delivers some of them: the server starts at
// once, holds little, reads in pieces, and takes new messages meanwhile.
//
// It runs by itself, because it measures the memory of the process.
//
//nolint:paralleltest // see above
func TestBacklogOfAMillion(t *testing.T) {
	url := pgtest.URL(t)
	first := open(t, url)
	c := caller{t: t, client: connect(t, first.Address()), name: "million"}
	c.make("data", "ingest", "detect")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	const total, size = 1_000_000, 150
	content, err := proto.Marshal(text(strings.Repeat("x", size)))
	if err != nil {
		t.Fatal(err)
	}
	db := look(t, url)
	// Ids as the server gives them: a block of the sequence, from its start.
	value[int64](db, `
		WITH block AS (SELECT nextval('pubsub.message_ids') AS first), made AS (
			INSERT INTO pubsub.messages (topic, id, waiting, publish_time, content)
			SELECT (SELECT id FROM pubsub.topics), first + n, ARRAY (SELECT id FROM pubsub.subscriptions WHERE name LIKE '%ingest'), now(), $1
			FROM block, generate_series(0, $2 - 1) AS n RETURNING 1)
		SELECT count(*) FROM made`, content, total)

	before := heap()
	began := time.Now()
	c = caller{t: t, client: connect(t, open(t, url).Address()), name: "million"}
	if took := time.Since(began); took > 2*time.Minute {
		t.Errorf("started after %s", took)
	}
	c.none("detect") // it has acknowledged all of them
	if took := time.Since(began); took > 4*time.Minute {
		t.Errorf("found nothing for the other subscription in %s", took)
	}
	seen := map[string]bool{}
	most := 0.0
	for len(seen) < 60_000 {
		received := c.pull("ingest", 1000)
		if len(received) == 0 {
			t.Fatalf("nothing after %d messages", len(seen))
		}
		for _, r := range received {
			if id := r.GetMessage().GetMessageId(); seen[id] {
				t.Fatalf("message %s came twice", id)
			} else {
				seen[id] = true
			}
		}
		c.acknowledge("ingest", ackIDs(received)...)
		if len(seen)%10_000 < 1000 {
			c.publish("data", texts(100)...)
			most = max(most, heap()-before)
		}
	}
	// The ids in seen are of this test: some 100 bytes each.
	if most > 48 {
		t.Errorf("the server holds %.0f MiB, of a backlog of %d MB", most, total*size>>20)
	}
	again := c.pull("ingest", 1000)
	c.deadline("ingest", 0, ackIDs(again)...)
	c.collect("ingest", 2000) // those and another page
	left := total + 1200 - int64(len(seen))
	eventually(t, "acknowledgements are stored", func() bool { return db.rows() <= left })
	t.Logf("60,000 of a million delivered and acknowledged in %.1f s, at most %.0f MiB held", time.Since(began).Seconds(), most)
}

// TestNoStatementTrustsStatistics has every statement planned for an empty table,
// and keeps the plans when there are thousands of rows: a join that is right for
// the one takes half a minute for the other.
func TestNoStatementTrustsStatistics(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	keeping, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	query := keeping.Query()
	query.Set("plan_cache_mode", "force_generic_plan")
	keeping.RawQuery = query.Encode()
	c := caller{t: t, client: connect(t, open(t, keeping.String()).Address()), name: "plans"}
	c.make("data", "ingest", "detect")
	db := look(t, url)
	execute := func(sql string) {
		t.Helper()
		if _, err := db.conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	round := func(n int) {
		t.Helper()
		for range n {
			c.publish("data", texts(500)...)
		}
		n *= 500
		ingest := c.collect("ingest", n)
		c.deadline("ingest", 0, ackIDs(ingest[:n/2])...)
		ingest = append(ingest[n/2:], c.collect("ingest", n/2)...)
		c.acknowledge("ingest", ackIDs(ingest)...)
		eventually(t, "one subscription's acknowledgements are stored", func() bool {
			return value[int64](db, `SELECT count(*) FROM pubsub.messages WHERE cardinality(waiting) = 1`) == int64(n)
		})
		c.acknowledge("detect", ackIDs(c.collect("detect", n))...)
		eventually(t, "the table is empty", func() bool { return db.rows() == 0 })
	}
	execute(`ALTER TABLE pubsub.messages SET (autovacuum_enabled = off)`)
	c.publish("data", texts(30)...)
	ingest, detect := c.collect("ingest", 30), c.collect("detect", 30)
	execute(`DELETE FROM pubsub.messages`)
	execute(`VACUUM ANALYZE pubsub.messages`)
	c.acknowledge("ingest", ackIDs(ingest[:10])...)
	c.acknowledge("detect", ackIDs(detect[:20])...)
	c.deadline("ingest", 0, ackIDs(ingest[10:])...)
	c.deadline("detect", 0, ackIDs(detect[20:])...)
	c.none("ingest")
	c.none("detect")
	time.Sleep(time.Second) // statements that find nothing leave no trace to wait for
	began := time.Now()
	round(18)
	t.Logf("9,000 messages in %.1f s", time.Since(began).Seconds())
}

// TestTableStaysFlat sends a hundred times through the table what it may hold.
func TestTableStaysFlat(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	client := connect(t, open(t, url).Address())
	c := caller{t: t, client: client, name: "flat"}
	c.make("data", "ingest", "detect")
	const rounds, batches, batch, size = 40, 8, 500, 1000
	messages := make([]*pubsubpb.PubsubMessage, batch)
	for i := range messages {
		messages[i] = text(fmt.Sprintf("%04d %s", i, strings.Repeat("x", size)))
	}
	db := look(t, url)
	bytes := func() int64 { t.Helper(); return value[int64](db, `SELECT pg_total_relation_size('pubsub.messages')`) }
	var half, whole int64 // largest in the first half, and in the second
	for round := range rounds {
		var publishing sync.WaitGroup
		for range batches {
			publishing.Go(func() { c.publish("data", messages...) })
		}
		for _, subscription := range []string{"ingest", "detect"} {
			for left := batches * batch; left > 0; {
				received := c.pull(subscription, 1000)
				if len(received) > 0 {
					c.acknowledge(subscription, ackIDs(received)...)
				}
				left -= len(received)
			}
		}
		publishing.Wait()
		if size := bytes(); round < rounds/2 {
			half = max(half, size)
		} else {
			whole = max(whole, size)
		}
	}
	const sent = int64(rounds) * batches * batch * size
	t.Logf("%d MB sent; the table had at most %d MB in the first half of the time, %d MB in the second", sent>>20, half>>20, whole>>20)
	if whole > half+half/4 || whole > sent/2 {
		t.Errorf("the table grows: at most %d MB in the first half of the time, %d MB in the second", half>>20, whole>>20)
	}
	eventually(t, "no row is left", func() bool { return db.rows() == 0 })
}
