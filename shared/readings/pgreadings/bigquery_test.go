package pgreadings_test

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigquery"
	"google.golang.org/api/option"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/tooltest"
)

// TestBigQuery holds the table with BigQuery as its archive to what every table does, on an emulator
// (BIGQUERY_EMULATOR_HOST and BIGQUERY_STORAGE_EMULATOR_HOST, its REST and gRPC servers; with -parallel 1, its
// database takes one writer at a time) or in a real project (BIGQUERY_TEST_PROJECT, where it makes a dataset and
// deletes it again). With neither it is skipped: what is sent and received is then tested against package bqtest,
// the statements by a parser and, with build tag googlesql, by Google's analyzer.
func TestBigQuery(t *testing.T) {
	t.Parallel()
	c := bqreadings.Config{
		Dataset: "test_" + strings.ToLower(rand.Text()), Table: "readings", MaxBytes: bqreadings.MaxBytes{Chart: 1 << 30, Export: 1 << 30, Training: 1 << 30},
		AppendTimeout: 20 * time.Second,
		Emulator:      os.Getenv("BIGQUERY_EMULATOR_HOST"), StorageEmulator: os.Getenv("BIGQUERY_STORAGE_EMULATOR_HOST"),
	}
	project := os.Getenv("BIGQUERY_TEST_PROJECT")
	switch {
	case c.Emulator != "" && c.StorageEmulator != "":
		project = "test"
	case project == "":
		tooltest.Skip(t, "neither BIGQUERY_EMULATOR_HOST with BIGQUERY_STORAGE_EMULATOR_HOST nor BIGQUERY_TEST_PROJECT is set")
	default:
		c.Emulator, c.StorageEmulator = "", ""
	}
	for name, test := range map[string]func(t *testing.T, archive *bqreadings.Store){ //nolint:paralleltest // the emulator takes one writer at a time
		"store": func(t *testing.T, archive *bqreadings.Store) { //nolint:thelper // the test itself
			conformance(t, pgreadings.New(pgtest.New(t), archive, present))
		},
		"archive alone": func(t *testing.T, archive *bqreadings.Store) { //nolint:thelper // the test itself
			// Nothing is raw in PostgreSQL for a clock that is far ahead.
			sampling(t, pgreadings.New(pgtest.New(t), archive, func() time.Time { return present().AddDate(1, 0, 0) }))
		},
		"history": func(t *testing.T, archive *bqreadings.Store) { //nolint:thelper // the test itself
			history(t, func(clock func() time.Time) *pgreadings.Store {
				return pgreadings.New(pgtest.New(t), archive, clock)
			})
		},
	} {
		c := c
		c.Dataset += "_" + strings.ReplaceAll(name, " ", "_")
		t.Run(name, func(t *testing.T) {
			archive := must.Get(bqreadings.Open(context.WithoutCancel(t.Context()), project, c, logging.Discard()))(t)
			t.Cleanup(func() { _ = archive.Close() })
			for range 2 { // the second finds what the first has made
				must.Do(t, archive.Create(t.Context()))
			}
			deleteAtEnd(t, project, c)
			test(t, archive)
		})
	}
}

func deleteAtEnd(t *testing.T, project string, c bqreadings.Config) {
	t.Helper()
	var options []option.ClientOption
	if c.Emulator != "" {
		options = append(options, option.WithEndpoint("http://"+strings.TrimPrefix(c.Emulator, "http://")+"/bigquery/v2/"), option.WithoutAuthentication())
	}
	ctx := context.WithoutCancel(t.Context())
	client := must.Get(bigquery.NewClient(ctx, project, options...))(t)
	t.Cleanup(func() {
		_ = client.Dataset(c.Dataset).DeleteWithContents(ctx)
		_ = client.Close()
	})
}
