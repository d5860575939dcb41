// Package bqreadings stores readings in BigQuery, for production: the table
// sensor_data.readings, partitioned by day of timestamp and clustered by node
// and message.
//
// Writing goes through the Storage Write API's default stream: at least once,
// visible at once, one long connection per instance, the rows of concurrent
// requests in one append. A request hears of success only when BigQuery has
// acknowledged its rows. What arrives twice is stored twice; every query here
// counts it once.
//
// Reading is by queries of named parameters that always bound the partition
// column, name their columns, and carry a limit on the bytes they may bill.
// Latest readings, which every open dashboard polls, are cached for seconds
// and fetched once for all who ask at the same time.
//
// functions/ingest writes with it, run/api and functions/train read.
package bqreadings

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
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
)

// Config says where the table is and what using it may cost. Embed it in a
// program's settings.
type Config struct {
	Dataset string `env:"DATASET_ID" envDefault:"sensor_data"`
	Table   string `env:"TABLE_ID" envDefault:"readings"`
	// MaxBytesBilled fails a query that would bill more bytes than this. The
	// default, 10 GiB or some 6 cents, is far above any query on few nodes.
	MaxBytesBilled int64 `env:"BIGQUERY_MAX_BYTES_BILLED" envDefault:"10737418240"`
	// LatestTTL is how old a latest reading from the cache may be; 0 caches
	// nothing.
	LatestTTL time.Duration `env:"LATEST_CACHE_TTL" envDefault:"3s"`
	// Linger is how long a row waits for rows of other requests while appends are
	// in flight; 0 sends every request's rows in an append of their own.
	Linger time.Duration `env:"APPEND_LINGER" envDefault:"2ms"`
	// AppendTimeout ends an attempt to append that BigQuery does not answer; it
	// answers in some tens of milliseconds.
	AppendTimeout time.Duration `env:"APPEND_TIMEOUT" envDefault:"8s"`
	// Emulator and StorageEmulator are host:port of a BigQuery emulator's REST
	// and gRPC servers; both or neither.
	Emulator        string `env:"BIGQUERY_EMULATOR_HOST"`
	StorageEmulator string `env:"BIGQUERY_STORAGE_EMULATOR_HOST"`
}

// Bounds of one append. BigQuery takes 10 MB a request; more rows than these
// gain nothing. With maxAppendsInFlight appends in flight, further rows wait.
const (
	maxAppendRows      = 500
	maxAppendBytes     = 1 << 20
	maxAppendsInFlight = 8
)

// isName reports whether a project, dataset or table may be called so. Nothing
// that it accepts can end a quoted path.
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
	if c.MaxBytesBilled < 10<<20 {
		errs = append(errs, errors.New("BIGQUERY_MAX_BYTES_BILLED must be at least 10485760, the least that a query bills"))
	}
	if c.Linger < 0 || c.Linger > time.Second {
		errs = append(errs, errors.New("APPEND_LINGER must lie between 0s and 1s"))
	}
	if c.AppendTimeout < time.Millisecond || c.AppendTimeout > 20*time.Second {
		errs = append(errs, errors.New("APPEND_TIMEOUT must lie between 1ms and 20s"))
	}
	if c.LatestTTL < 0 || c.LatestTTL > time.Minute {
		errs = append(errs, errors.New("LATEST_CACHE_TTL must lie between 0s and 1m"))
	}
	return errors.Join(errs...)
}

// Store is the table. Its methods may be called from many goroutines.
type Store struct {
	config  Config
	client  *bigquery.Client
	writer  *writer
	appends *coalesce.Group[[]byte, error] // encoded rows; the results are nil where the row is durable
	latest  *latestCache
	table   string // quoted
	clock   func() time.Time
}

// Open returns the store of a project's table without connecting to anything.
// ctx bounds nothing after that; end the store with [Store.Close].
func Open(ctx context.Context, project string, config Config, clock func() time.Time, log *slog.Logger) (*Store, error) {
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
	w := newWriter(ctx, project, managedwriter.TableParentFromParts(project, config.Dataset, config.Table), config.AppendTimeout, appends, log)
	s := &Store{
		config: config,
		client: client,
		writer: w,
		appends: coalesce.New(func(_ context.Context, rows [][]byte) ([]error, error) {
			return w.append(rows), nil //nolint:contextcheck // ends with the store, not with a caller
		}, appendOptions(config.Linger)),
		table: quotedTable(project, config.Dataset, config.Table),
		clock: clock,
	}
	s.latest = newLatestCache(config.LatestTTL, clock, s.queryLatest)
	return s, nil
}

func appendOptions(linger time.Duration) coalesce.Options[[]byte] {
	options := coalesce.Options[[]byte]{
		MaxItems: maxAppendRows, MaxSize: maxAppendBytes, Size: func(row []byte) int { return len(row) },
		MaxInFlight: maxAppendsInFlight, Linger: linger,
	}
	if linger == 0 {
		options.MaxInFlight = math.MaxInt
	}
	return options
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

// Close sends what is still gathered, waits for its acknowledgement and closes
// the connections. No method may be called after it.
func (s *Store) Close() error {
	s.appends.Close()
	s.latest.close()
	s.writer.close()
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("close BigQuery client: %w", err)
	}
	return nil
}
