package pgpubsub

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"
)

//go:embed schema.sql
var schema string

const (
	// poolSize is one connection that stores acknowledgements, one that vacuums,
	// and some that read.
	poolSize = 6
	// lockTimeout is how long a start waits for the server before it to end.
	lockTimeout = 30 * time.Second
	// readTimeout bounds the reading of a page.
	readTimeout = 30 * time.Second
)

// openDatabase connects, makes the schema, and loads what it holds.
func (s *Server) openDatabase(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(s.config.DatabaseURL)
	if err != nil {
		return fmt.Errorf("pub/sub database: %w", err)
	}
	config.MaxConns = poolSize
	writing := config.ConnConfig.Copy()
	// A publisher is answered when his message is on disk, whatever the server's
	// default is.
	writing.RuntimeParams["synchronous_commit"] = "on"
	// A forgotten acknowledgement only means one more delivery.
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	// Every statement goes by the primary key. A planner that last saw the table
	// empty would choose otherwise, and keep the plan when it is not.
	config.ConnConfig.RuntimeParams["enable_seqscan"] = "off"
	config.ConnConfig.RuntimeParams["enable_bitmapscan"] = "off"
	locking, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	if err := s.writers.open(locking, writing); err != nil {
		return fmt.Errorf("pub/sub database: %w", err)
	}
	if err := s.writers.write(locking, s.prepare); err != nil {
		return fmt.Errorf("pub/sub database: %w", err)
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return fmt.Errorf("pub/sub database: %w", err)
	}
	return s.load(ctx)
}

// prepare makes the schema.
func (s *Server) prepare(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, schema); err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	var fsync, fullPageWrites string
	err := conn.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('full_page_writes')`).Scan(&fsync, &fullPageWrites)
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	if fsync == "off" || fullPageWrites == "off" {
		s.config.Log.WarnContext(ctx, "a power cut may lose published messages: PostgreSQL does not write them through",
			"fsync", fsync, "full_page_writes", fullPageWrites)
	}
	return nil
}

// load makes the topics and subscriptions that the database has. Their messages
// stay where they are until somebody pulls.
func (s *Server) load(ctx context.Context) error {
	// Every message there is has an id below.
	if err := s.writers.reserve(ctx); err != nil {
		return err
	}
	const topicsSQL = `SELECT name, id FROM pubsub.topics`
	rows, err := s.pool.Query(ctx, topicsSQL)
	if err != nil {
		return fmt.Errorf("load topics: %w", err)
	}
	byID := map[int32]*topic{}
	t := &topic{}
	if _, err := pgx.ForEachRow(rows, []any{&t.name, &t.id}, func() error {
		found := &topic{name: t.name, id: t.id}
		byID[t.id], s.topics[t.name] = found, found
		return nil
	}); err != nil {
		return fmt.Errorf("load topics: %w", err)
	}
	const subscriptionsSQL = `SELECT name, id, topic, ack_deadline_seconds FROM pubsub.subscriptions ORDER BY id`
	if rows, err = s.pool.Query(ctx, subscriptionsSQL); err != nil {
		return fmt.Errorf("load subscriptions: %w", err)
	}
	var name string
	var id, of, ackDeadline int32
	if _, err := pgx.ForEachRow(rows, []any{&name, &id, &of, &ackDeadline}, func() error {
		sub := newSubscription(name, id, byID[of], time.Duration(ackDeadline)*time.Second)
		sub.reload(s.writers.next - 1)
		s.attach(sub)
		return nil
	}); err != nil {
		return fmt.Errorf("load subscriptions: %w", err)
	}
	return nil
}

// A page of the table is bounded by the rows that are looked at, because many of
// them may wait for other subscriptions only, by the rows that are fetched, and by
// their bytes.
const (
	scanRows  = 20_000
	pageRows  = 1000
	pageBytes = 8 << 20
)

const (
	// scanSQL says how far from $2 a page reaches.
	scanSQL = `
SELECT max(id) FROM (
    SELECT id FROM pubsub.messages WHERE topic = $1 AND id BETWEEN $2 AND $3 ORDER BY id LIMIT $4
) AS scanned`
	// backlogSQL fetches what a subscription has not acknowledged.
	backlogSQL = `
WITH page AS (
    SELECT id, publish_time, waiting, content FROM pubsub.messages
    WHERE topic = $1 AND id BETWEEN $2 AND $3 AND $4 = ANY (waiting)
    ORDER BY id LIMIT $5
)
SELECT id, publish_time, waiting, content
FROM (SELECT *, sum(octet_length(content)) OVER (ORDER BY id) - octet_length(content) AS before FROM page) AS sized
WHERE before < $6
ORDER BY id`
	// againSQL fetches messages that are delivered again, each by the whole primary
	// key: OFFSET keeps the planner from another join.
	againSQL = `
WITH page AS (
    SELECT m.* FROM unnest($2::bigint[]) AS wanted (id) CROSS JOIN LATERAL (
        SELECT id, publish_time, waiting, content FROM pubsub.messages WHERE topic = $1 AND id = wanted.id OFFSET 0
    ) AS m
)
SELECT id, publish_time, waiting, content
FROM (SELECT *, sum(octet_length(content)) OVER (ORDER BY id) - octet_length(content) AS before FROM page) AS sized
WHERE before < $3
ORDER BY id`
)

// read fetches a page.
func (s *Server) read(ctx context.Context, sub *subscription, p *page) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var err error
	if p.again != nil {
		err = s.readAgain(ctx, sub, p)
	} else {
		err = s.readBacklog(ctx, sub, p)
	}
	if err != nil {
		return fmt.Errorf("read undelivered messages: %w", err)
	}
	return nil
}

func (s *Server) readAgain(ctx context.Context, sub *subscription, p *page) error {
	ids := make([]int64, len(p.again))
	for i, d := range p.again {
		ids[i] = d.id
	}
	size, err := s.fetch(ctx, p, againSQL, sub.topic.id, ids, pageBytes)
	p.cut = size >= pageBytes
	return err
}

func (s *Server) readBacklog(ctx context.Context, sub *subscription, p *page) error {
	var last *int64
	if err := s.pool.QueryRow(ctx, scanSQL, sub.topic.id, p.from, p.to, scanRows).Scan(&last); err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	if last == nil { // nothing is left
		p.next = p.to + 1
		return nil
	}
	size, err := s.fetch(ctx, p, backlogSQL, sub.topic.id, p.from, *last, sub.id, pageRows, pageBytes)
	p.next = *last + 1
	if n := len(p.found); n == pageRows || size >= pageBytes {
		p.next = p.found[n-1].id + 1
	}
	return err
}

// fetch puts the messages that a query finds into a page and returns their bytes.
func (s *Server) fetch(ctx context.Context, p *page, sql string, arguments ...any) (size int, err error) {
	rows, err := s.pool.Query(ctx, sql, arguments...)
	if err != nil {
		return 0, fmt.Errorf("query: %w", err)
	}
	var id int64
	var published time.Time
	var waiting []int32
	var content pgtype.DriverBytes
	_, err = pgx.ForEachRow(rows, []any{&id, &published, &waiting, &content}, func() error {
		m := &pubsubpb.PubsubMessage{}
		if err := proto.Unmarshal(content, m); err != nil {
			return fmt.Errorf("message %d: %w", id, err)
		}
		identify(m, id, published)
		p.found = append(p.found, newDelivery(id, waiting, m, len(content)))
		size += len(content)
		waiting = nil
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("rows: %w", err)
	}
	return size, nil
}
