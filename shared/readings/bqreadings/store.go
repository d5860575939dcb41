// Package bqreadings stores readings in BigQuery, for production: the table
// sensor_data.readings, partitioned by day of timestamp and clustered by node
// and message.
//
// Writing goes through the Storage Write API's default stream: at least once,
// visible at once, one long connection per instance, the rows of concurrent
// requests in one append. A request succeeds only once BigQuery has acknowledged its
// rows. A reading that arrives twice is stored twice; every query here counts it once.
//
// Queries use named parameters, always bound the partition column, name their columns,
// and limit the bytes that they may bill for their purpose. This is the archive, see
// [readings.Archive]: package pgreadings reads it for exports, training, and charts of
// old readings in parts shorter than an hour.
package bqreadings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/bigquery"
	"cloud.google.com/go/bigquery/storage/managedwriter"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// Config says where the table is and what using it may cost. Embed it in a
// program's settings.
type Config struct {
	Dataset string `env:"DATASET_ID" envDefault:"sensor_data"`
	Table   string `env:"TABLE_ID" envDefault:"readings"`
	// MaxBytes are limits on the bytes that one query may bill. BigQuery runs no query
	// that would bill more.
	MaxBytes      MaxBytes
	AppendTimeout time.Duration // of tests; 0 is appendTimeout
	// Emulator and StorageEmulator are host:port of a BigQuery emulator's REST
	// and gRPC servers; both or neither.
	Emulator        string `env:"BIGQUERY_EMULATOR_HOST"`
	StorageEmulator string `env:"BIGQUERY_STORAGE_EMULATOR_HOST"`
}

// MaxBytes has a limit in bytes for each purpose of a query. 16 GiB cost some 10 cents.
type MaxBytes struct {
	Chart    int64 `env:"BIGQUERY_MAX_BYTES_CHART" envDefault:"17179869184"`
	Export   int64 `env:"BIGQUERY_MAX_BYTES_EXPORT" envDefault:"68719476736"`
	Training int64 `env:"BIGQUERY_MAX_BYTES_TRAINING" envDefault:"68719476736"`
}

func (c Config) maxBytes(purpose readings.Purpose) int64 {
	switch purpose {
	case readings.Chart:
		return c.MaxBytes.Chart
	case readings.Training:
		return c.MaxBytes.Training
	default:
		return c.MaxBytes.Export
	}
}

const (
	// maxAppendRows bounds one append: 80 KB, of which BigQuery takes 10 MB.
	maxAppendRows = 500
	// appendTimeout ends an attempt to append that BigQuery does not answer; it answers in some
	// tens of milliseconds.
	appendTimeout = 8 * time.Second
	// gather is how long rows wait for others to share an append, chosen for a BigQuery that
	// answers in 50 ms (BenchmarkInstance of functions/ingest).
	gather = 2 * time.Millisecond
	// maxAppendsInFlight leaves room for all that begin while BigQuery answers one.
	maxAppendsInFlight = 32
)

// isName reports whether a project, dataset or table may have a name. No name that it
// accepts can end a quoted path.
func isName(s string) bool {
	return s != "" && len(s) <= 1024 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:.-") == ""
}

// Validate implements [config.Validator].
func (c Config) Validate() error {
	var errs []error
	for name, value := range map[string]string{"DATASET_ID": c.Dataset, "TABLE_ID": c.Table} {
		if !isName(value) {
			errs = append(errs, fmt.Errorf("%s is not a valid name", name))
		}
	}
	for name, limit := range map[string]int64{"CHART": c.MaxBytes.Chart, "EXPORT": c.MaxBytes.Export, "TRAINING": c.MaxBytes.Training} {
		if limit < 10<<20 {
			errs = append(errs, fmt.Errorf("BIGQUERY_MAX_BYTES_%s must be at least 10485760, the least that a query bills", name))
		}
	}
	return errors.Join(errs...)
}

// Store is the table. Its methods may be called from many goroutines.
type Store struct {
	config  Config
	client  *bigquery.Client
	writer  *writer
	appends *coalesce.Group[[]byte, error] // encoded rows; the results are nil where the row is durable
	table   string                         // its quoted path, of checked identifiers only
}

// Open returns the store of a project's table without connecting to anything.
// ctx bounds nothing after that; end the store with [Store.Close].
func Open(ctx context.Context, project string, config Config, log *slog.Logger) (*Store, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if !isName(project) {
		return nil, errors.New("PROJECT_ID is not a valid name")
	}
	queries, appends := endpoints(config)
	client, err := bigquery.NewClient(context.WithoutCancel(ctx), project, queries...)
	if err != nil {
		return nil, fmt.Errorf("open BigQuery client: %w", err)
	}
	w := newWriter(ctx, project, managedwriter.TableParentFromParts(project, config.Dataset, config.Table),
		cmp.Or(config.AppendTimeout, appendTimeout), appends, log)
	return &Store{
		config: config,
		client: client,
		writer: w,
		appends: coalesce.New(func(_ context.Context, rows [][]byte) ([]error, error) {
			return w.append(rows), nil //nolint:contextcheck // ends with the store, not with a caller
		}, coalesce.Options[[]byte]{MaxItems: maxAppendRows, MaxInFlight: maxAppendsInFlight, Wait: coalesce.Wait{Gather: gather}}),
		table: "`" + project + "." + config.Dataset + "." + config.Table + "`",
	}, nil
}

// endpoints are the options of the two clients: none in production, where the
// libraries find everything themselves.
func endpoints(config Config) (queries, appends []option.ClientOption) {
	queries = []option.ClientOption{bigquery.WithDefaultJobCreationMode(bigquery.JobCreationModeOptional)}
	if config.Emulator != "" {
		address := config.Emulator
		if !strings.Contains(address, "://") {
			address = "http://" + address
		}
		queries = append(queries, option.WithEndpoint(strings.TrimSuffix(address, "/")+"/bigquery/v2/"), option.WithoutAuthentication())
	}
	if config.StorageEmulator != "" {
		appends = []option.ClientOption{
			option.WithEndpoint(config.StorageEmulator), option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		}
	}
	return queries, appends
}

// Append stores rows and returns when BigQuery has acknowledged all of them.
// After an error some may be stored; sending them again does no harm.
func (s *Store) Append(ctx context.Context, rows []reading.Reading) error {
	encoded := make([][]byte, len(rows))
	for i, row := range rows {
		encoded[i] = encodeRow(row)
	}
	for chunk := range slices.Chunk(encoded, maxAppendRows) {
		errs, err := s.appends.DoAll(ctx, chunk)
		if err != nil {
			return fmt.Errorf("append %d rows: %w", len(chunk), err)
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// Close sends the rows that are still waiting, waits for their acknowledgement and closes
// the connections. No method may be called after it.
func (s *Store) Close() error {
	s.appends.Close()
	s.writer.close()
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("close BigQuery client: %w", err)
	}
	return nil
}
