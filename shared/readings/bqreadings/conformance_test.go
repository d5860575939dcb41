package bqreadings_test

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
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/readingstest"
)

// TestConformance holds the store to what every table of readings does, on an
// emulator (BIGQUERY_EMULATOR_HOST and BIGQUERY_STORAGE_EMULATOR_HOST, its REST
// and gRPC servers; with -parallel 1, its database takes one writer at a time)
// or in a real project (BIGQUERY_TEST_PROJECT, where it makes
// a dataset and deletes it again). With neither it is skipped: what is sent and
// received is then tested against package bqtest, the statements by a parser
// and, with build tag googlesql, by Google's analyzer.
func TestConformance(t *testing.T) {
	t.Parallel()
	c := bqreadings.Config{
		Dataset: "test_" + strings.ToLower(rand.Text()), Table: "readings", MaxBytesBilled: 1 << 30,
		Linger: time.Millisecond, AppendTimeout: 10 * time.Second,
		Emulator: os.Getenv("BIGQUERY_EMULATOR_HOST"), StorageEmulator: os.Getenv("BIGQUERY_STORAGE_EMULATOR_HOST"),
	}
	project := os.Getenv("BIGQUERY_TEST_PROJECT")
	switch {
	case c.Emulator != "" && c.StorageEmulator != "":
		project = "test"
	case project == "":
		t.Skip("neither BIGQUERY_EMULATOR_HOST with BIGQUERY_STORAGE_EMULATOR_HOST nor BIGQUERY_TEST_PROJECT is set")
	default:
		c.Emulator, c.StorageEmulator = "", ""
	}
	openTable := func() *bqreadings.Store {
		s, err := bqreadings.Open(context.WithoutCancel(t.Context()), project, c, readingstest.Now, logging.Discard())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		for range 2 { // the second finds what the first has made
			if err := s.Create(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		deleteAtEnd(t, project, c)
		return s
	}
	t.Run("history", func(t *testing.T) { //nolint:paralleltest // the tables are deleted after it
		readingstest.RunHistory(t, openTable())
	})
	c.Dataset += "_2"
	s := openTable()
	t.Run("store", func(t *testing.T) { //nolint:paralleltest // the tables are deleted after it
		readingstest.Run(t, s)
	})
}

// deleteAtEnd deletes the dataset when the test ends.
func deleteAtEnd(t *testing.T, project string, c bqreadings.Config) {
	t.Helper()
	var options []option.ClientOption
	if c.Emulator != "" {
		options = append(options, option.WithEndpoint("http://"+strings.TrimPrefix(c.Emulator, "http://")+"/bigquery/v2/"), option.WithoutAuthentication())
	}
	client, err := bigquery.NewClient(t.Context(), project, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Dataset(c.Dataset).DeleteWithContents(context.WithoutCancel(t.Context()))
		_ = client.Close()
	})
}
