package bqreadings_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/bigquery"
	"google.golang.org/api/option"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/readings/readingstest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

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
		Dataset: "test_" + strings.ToLower(rand.Text()), Table: "readings", MaxBytes: bqreadings.MaxBytes{Page: 1 << 30, Chart: 1 << 30, Export: 1 << 30, Training: 1 << 30},
		Linger: time.Millisecond, AppendTimeout: 20 * time.Second,
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
	var clock atomic.Int64 // ahead of that of the readings
	now := func() time.Time { return readingstest.Now().Add(time.Duration(clock.Load())) }
	openTable := func() *bqreadings.Store {
		s, err := bqreadings.Open(context.WithoutCancel(t.Context()), project, c, now, logging.Discard())
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
	t.Run("hourly", func(t *testing.T) { //nolint:paralleltest // the tables are deleted after it
		s := openTable()
		// What is aggregated is read from a copy.
		hours := pgreadings.NewHours(pgtest.New(t), now)
		s.ReadHoursFrom(hours)
		client := newClient(t, project, c)
		run(t, client, "CREATE TABLE `"+c.Dataset+".partitions` (table_name STRING, partition_id STRING, last_modified_time TIMESTAMP)")
		if c.Emulator != "" { // its MERGE takes no FLOAT64 for a column that was made as FLOAT, which is the same
			hourly := c.Dataset + "." + c.Table + "_hourly"
			run(t, client, "DROP TABLE `"+hourly+"`")
			run(t, client, "CREATE TABLE `"+hourly+"` (node_id STRING, customer_id INT64, hour TIMESTAMP, readings INT64, avg_temperature FLOAT64, "+
				"min_temperature FLOAT64, max_temperature FLOAT64, avg_humidity FLOAT64, min_humidity FLOAT64, max_humidity FLOAT64)")
		}
		readingstest.RunHourly(t, s, func(days []time.Time) {
			clock.Add(int64(time.Hour)) // what the store knows of the last run is old
			for _, day := range days {
				run(t, client, fmt.Sprintf("INSERT INTO `%s.partitions` VALUES ('readings', '%s', TIMESTAMP '%s')",
					c.Dataset, day.Format("20060102"), now().Add(-time.Second).Format(time.RFC3339)))
			}
			run(t, client, aggregation(t, project, c, now()))
			if err := hours.Refresh(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if _, until, err := hours.Range(t.Context()); err != nil || until.IsZero() {
				t.Fatalf("copied until %s, %v", until, err)
			}
		})
	})
	c.Dataset += "_3"
	clock.Store(0)                       // the next suite looks at what lies ahead
	t.Run("sample", func(t *testing.T) { //nolint:paralleltest // the tables are deleted after it
		readingstest.RunSample(t, openTable())
	})
	c.Dataset += "_4"
	s := openTable()
	t.Run("store", func(t *testing.T) { //nolint:paralleltest // the tables are deleted after it
		readingstest.Run(t, s)
	})
}

// deleteAtEnd deletes the dataset when the test ends.
func deleteAtEnd(t *testing.T, project string, c bqreadings.Config) {
	t.Helper()
	client := newClient(t, project, c)
	t.Cleanup(func() { _ = client.Dataset(c.Dataset).DeleteWithContents(context.WithoutCancel(t.Context())) })
}

func newClient(t *testing.T, project string, c bqreadings.Config) *bigquery.Client {
	t.Helper()
	var options []option.ClientOption
	if c.Emulator != "" {
		options = append(options, option.WithEndpoint("http://"+strings.TrimPrefix(c.Emulator, "http://")+"/bigquery/v2/"), option.WithoutAuthentication())
	}
	client, err := bigquery.NewClient(context.WithoutCancel(t.Context()), project, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func run(t *testing.T, client *bigquery.Client, statement string) {
	t.Helper()
	if _, err := client.Query(statement).Read(t.Context()); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// aggregation returns the scheduled query as one run executes it, the whole script. For
// the emulator three things are replaced: the time, the view of partitions, which it has
// not, by a table, and IF, which it skips whatever the condition, by a block: without a
// day to aggregate that changes nothing. Nor does it know a declaration behind a comment.
func aggregation(t *testing.T, project string, c bqreadings.Config, now time.Time) string {
	t.Helper()
	content, err := os.ReadFile("../../../terraform/modules/readings/hourly.sql")
	if err != nil {
		t.Fatal(err)
	}
	const condition, end = "IF ARRAY_LENGTH(run_days) > 0 THEN", "END IF;"
	script := regexp.MustCompile(`(?m)--.*$`).ReplaceAllString(string(content), "")
	for _, text := range []string{condition, end} {
		if strings.Count(script, text) != 1 {
			t.Fatalf("the script has not one %s", text)
		}
	}
	pairs := []string{
		"${project}", project, "${dataset}.INFORMATION_SCHEMA.PARTITIONS", c.Dataset + ".partitions", "${dataset}", c.Dataset,
		"${readings}", c.Table, "${hourly}", c.Table + "_hourly", "${runs}", c.Table + "_hourly_runs",
		"CURRENT_TIMESTAMP()", "TIMESTAMP '" + now.UTC().Format(time.RFC3339) + "'",
	}
	if c.Emulator != "" {
		pairs = append(pairs, condition, "BEGIN", end, "END;")
	}
	return strings.NewReplacer(pairs...).Replace(script)
}
