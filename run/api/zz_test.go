package api

import (
	"fmt"
	"os"
	"testing"
	"time"
	"io"
	"log/slog"
	"coldaisle.dev/shared/logging"
)

func BenchmarkExplain(b *testing.B) {
	s := newTestAPI(b, func(c *Config) { c.Log = logging.New(io.Discard, slog.LevelInfo, "") })
	s.document = nil
	a := s.customer(b)
	a.fleet(b, 2000, 100, time.Now().Add(-time.Minute))
	a.execute(b, `ANALYZE`)
	for _, f := range []string{"/tmp/q.sql","/tmp/q2.sql"} {
	raw, err := os.ReadFile(f)
	if err != nil { continue }
	for k := range 6 {
		rows, err := a.pool.Query(b.Context(), "EXPLAIN (ANALYZE, BUFFERS) "+string(raw))
		if err != nil { b.Fatal(err) }
		for rows.Next() { var l string; rows.Scan(&l); if k==5 {fmt.Println(l)} }
		if rows.Err() != nil { b.Fatal(rows.Err()) }
	}
	}
	rows, _ := a.pool.Query(b.Context(), "select column_name::text, data_type::text from information_schema.columns where table_name='node_state' order by ordinal_position")
	for rows.Next() { var l,m string; rows.Scan(&l,&m); fmt.Println(l,m) }
	for b.Loop() {}
}
