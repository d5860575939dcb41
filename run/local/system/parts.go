package system

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/storage"
	"github.com/fsouza/fake-gcs-server/fakestorage"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/run/api/records"
	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/postgres"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/recordstore"
	"coldaisle.dev/shared/store"
)

// poolSize bounds the database connections of the API, and those of the pipeline.
const poolSize = 12

// The buckets in object storage.
const (
	ModelBucket  = "models"
	RecordBucket = "records"
)

// startDatabase connects to the given database or starts a PostgreSQL, and migrates
// the schema.
func (s *System) startDatabase(ctx context.Context) error {
	s.databaseURL = s.options.DatabaseURL
	if s.databaseURL == "" {
		server, err := postgres.Start(ctx, postgres.Options{
			Dir: filepath.Join(s.options.DataDir, "postgres"), Download: true, Log: s.log,
		})
		if err != nil {
			return err
		}
		s.opened.Push("PostgreSQL", server.Stop)
		// Without it nothing works: the system then ends, so that whoever runs it starts it again.
		s.runComponent(ctx, "watch PostgreSQL", func(ctx context.Context) error {
			select {
			case <-server.Exited():
				return errors.New("PostgreSQL has ended")
			case <-ctx.Done():
				return nil
			}
		})
		s.databaseURL = server.URL()
	}
	pool, end, err := cloudsql.Open(ctx, cloudsql.Config{DatabaseURL: s.databaseURL, MaxConns: poolSize})
	if err != nil {
		return err
	}
	s.opened.Push("database pool", closing.NoError(end))
	s.Pool, s.db = pool, store.New(pool)
	return store.Migrate(ctx, pool)
}

// openReadings opens the time-series table, and makes its archive in an emulator.
func (s *System) openReadings(ctx context.Context) error {
	if s.options.BigQuery.Emulator != "" {
		table, err := bqreadings.Open(ctx, Project, s.options.BigQuery, s.log)
		if err != nil {
			return err
		}
		s.opened.Push("BigQuery", table.Close)
		if err := table.Create(ctx); err != nil {
			return err
		}
		s.archive = table
	}
	s.Readings = pgreadings.New(s.db, s.archive, s.options.Clock)
	return nil
}

// startPubSub connects to the given emulator, or starts the queue.
func (s *System) startPubSub(ctx context.Context) error {
	address := s.options.PubSubEmulator
	if address == "" {
		var err error
		s.Queue, err = queue.Open(ctx, queue.Config{
			DatabaseURL: s.databaseURL, Project: Project, Policy: s.options.Delivery, Clock: s.options.Clock, Log: s.log,
		})
		if err != nil {
			return err
		}
		s.opened.Push("queue", closing.NoError(s.Queue.Close))
		address = s.Queue.Address
	}
	s.PubSubAddress = address
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to Pub/Sub at %s: %w", address, err)
	}
	s.PubSub, err = pubsub.NewClient(context.WithoutCancel(ctx), Project, option.WithGRPCConn(connection))
	if err != nil {
		return errors.Join(fmt.Errorf("connect to Pub/Sub at %s: %w", address, err), connection.Close())
	}
	s.opened.Push("Pub/Sub client", s.PubSub.Close)
	return nil
}

// startStorage uses the given object storage emulator, or starts one over files.
func (s *System) startStorage(ctx context.Context) error {
	if address := s.options.StorageEmulator; address != "" {
		if !strings.Contains(address, "://") { // the client library takes both
			address = "http://" + address
		}
		s.StorageURL = strings.TrimSuffix(address, "/")
		return errors.Join(s.createBucket(ctx, ModelBucket), s.createBucket(ctx, RecordBucket))
	}
	server, err := OpenStorage(s.options.DataDir)
	if err != nil {
		return err
	}
	s.opened.Push("object storage", closing.NoError(server.Stop))
	s.StorageURL = server.URL()
	return nil
}

// OpenStorage serves object storage over files in a folder, with its buckets.
func OpenStorage(folder string) (*fakestorage.Server, error) {
	root := filepath.Join(folder, "objects")
	for _, bucket := range []string{ModelBucket, RecordBucket} {
		if err := os.MkdirAll(filepath.Join(root, bucket), 0o700); err != nil {
			return nil, fmt.Errorf("object storage: %w", err)
		}
	}
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1", StorageRoot: root, Writer: io.Discard})
	if err != nil {
		return nil, fmt.Errorf("object storage: %w", err)
	}
	return server, nil
}

func (s *System) storageOptions() []option.ClientOption {
	return []option.ClientOption{option.WithEndpoint(s.StorageURL + "/storage/v1/"), option.WithoutAuthentication()}
}

// createBucket makes a bucket in an emulator, unless it is there.
func (s *System) createBucket(ctx context.Context, name string) error {
	client, err := storage.NewClient(ctx, s.storageOptions()...)
	if err != nil {
		return fmt.Errorf("object storage: %w", err)
	}
	defer func() { _ = client.Close() }()
	err = client.Bucket(name).Create(ctx, Project, nil)
	if refused, ok := errors.AsType[*googleapi.Error](err); ok && refused.Code == http.StatusConflict {
		return nil
	}
	if err != nil {
		return fmt.Errorf("object storage: create bucket %s: %w", name, err)
	}
	return nil
}

func (s *System) openModels(ctx context.Context) (err error) {
	if s.Models, err = modelstore.Open(ctx, ModelBucket, s.storageOptions()...); err == nil {
		s.opened.Push("models", s.Models.Close)
	}
	return err
}

// openRecords opens the bucket of records, and reads the key that signs them, which is created at
// the first start.
func (s *System) openRecords(ctx context.Context) (*records.Keys, *recordstore.Bucket, error) {
	text, err := readOrCreateSecret(filepath.Join(s.options.DataDir, "record_keys"), func() string {
		seed := make([]byte, ed25519.SeedSize)
		_, _ = rand.Read(seed) // it never fails
		return s.options.Clock().UTC().Format(time.DateOnly) + "=" + base64.StdEncoding.EncodeToString(seed)
	})
	if err != nil {
		return nil, nil, err
	}
	keys, err := records.ParseKeys(text)
	if err != nil {
		return nil, nil, err
	}
	bucket, err := recordstore.Open(ctx, RecordBucket, s.storageOptions()...)
	if err != nil {
		return nil, nil, err
	}
	s.opened.Push("records", bucket.Close)
	return keys, bucket, nil
}

// loader returns a loader of the models in use; each component has its own, as in
// production.
func (s *System) loader() *modelstore.Loader {
	loader := modelstore.NewLoader(s.Models, s.options.ModelRefreshInterval, s.options.Clock, s.log)
	s.opened.Push("loader of models", loader.Close)
	return loader
}

// announce announces the gateway by mDNS, unless it listens on the loopback interface
// only, and configures the limits that real nodes need.
func (s *System) announce(ctx context.Context, listener net.Listener, enrolled announce.Enrolment, config *gateway.Config) {
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok || address.IP.IsLoopback() {
		return
	}
	announcer := announce.New(announce.Config{Port: address.Port, Enrolment: enrolled}, s.options.Clock, s.log)
	s.runComponent(ctx, "mDNS", announcer.Run)
	config.NodeRate, config.NodeBurst, config.AddressRate = 50, 100, 1000 // monitor-gateway's defaults
	config.Discovery = func() any { return announcer.State() }
	config.Checks = append(config.Checks, gateway.NameCheck(func() string { return announcer.State().Problem }))
	config.Collectors = announcer.Collectors()
}

// readOrCreateSecret returns the content of a file that only its owner can read, and
// creates the file when it is missing.
func readOrCreateSecret(path string, initial func() string) (string, error) {
	content, err := os.ReadFile(path) //nolint:gosec // in our own data folder
	if errors.Is(err, fs.ErrNotExist) {
		content = []byte(initial() + "\n")
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = os.WriteFile(path, content, 0o600)
		}
	}
	if err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}
