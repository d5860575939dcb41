package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
)

// countedQueries counts the statements of a pool.
type countedQueries struct{ asked atomic.Int64 }

func (q *countedQueries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	q.asked.Add(1)
	return ctx
}

func (q *countedQueries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestPreviewAsksAsMuchForManyRooms previews rules for one room and for thirty: the same number of statements.
func TestPreviewAsksAsMuchForManyRooms(t *testing.T) {
	t.Parallel()
	var config Config
	s, a := newTestCustomer(t, func(c *Config) { config = *c })
	settings := s.pool.Config()
	queries := &countedQueries{}
	settings.ConnConfig.Tracer = queries
	settings.MaxConns = 2
	pool := must.Get(pgxpool.NewWithConfig(t.Context(), settings))(t)
	t.Cleanup(pool.Close)
	config.DB, config.Readings = store.New(pool), pgreadings.New(pool, nil, time.Now)
	counted := must.Get(New(config))(t)
	sensors := 0
	preview := func() int64 {
		t.Helper()
		before := queries.asked.Load()
		got := answer(t, counted, http.MethodPost, "/api/v1/rules/preview", `{"days":7,"rules":[`+fmt.Sprintf(someRule, 20.0, "")+`]}`,
			map[string]string{"Authorization": "Bearer " + a.token, "Content-Type": "application/json"}).is(t, http.StatusOK)
		must.Equal(t, "sensors", sensors, strings.Count(string(got.body), `"sensor_id"`))
		return queries.asked.Load() - before
	}
	add := func(rooms int) {
		t.Helper()
		for range rooms {
			id := fmt.Sprint("node-", sensors)
			room := a.room(t, fmt.Sprintf("Hall %d", sensors))
			a.sensors(t, room, id)
			s.reading(t, id, time.Now().Add(-time.Hour), 30, 40)
			sensors++
		}
	}
	add(1)
	preview() // the connection and what the API caches
	one := preview()
	add(29)
	preview() // what the API caches may have expired meanwhile
	if many := preview(); many != one || one > 6 {
		t.Errorf("%d statements for a room, %d for thirty", one, many)
	}
}
