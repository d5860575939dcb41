// Package modelstore keeps each customer's models and calibration in object storage: immutable artifacts, and
// one index that names those in use. The index is written last, and only if it is unchanged since it was read:
// nobody reads half a pair, and no trainer undoes another's publication. A roll-back names an older pair.
package modelstore

import (
	"cmp"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/objects"
	"coldaisle.dev/shared/parallel"
)

// Names in the bucket. The artifacts of a customer are in a folder of their own.
const (
	folder    = "models/"
	suffix    = ".bin"
	indexName = folder + "index.json"
)

// indexAttempts bounds the attempts to change the index while others change it.
const indexAttempts = 20

var (
	// ErrConflict says that another trainer has published for the customer.
	ErrConflict = objects.ErrConflict
	// ErrNoArtifact says that there is no such artifact.
	ErrNoArtifact = errors.New("no such model")
)

// Manifest names the artifacts in use of one customer. The name of a kind that was never published is empty.
type Manifest struct {
	Detector    string    `json:"anomaly"`
	Forecaster  string    `json:"forecasting"`
	Published   time.Time `json:"published"` // the pair
	Calibration string    `json:"calibration,omitempty"`
}

// Version is the pair as training runs name it: comma-separated.
func (m Manifest) Version() string {
	names := slices.DeleteFunc([]string{m.Detector, m.Forecaster}, func(name string) bool { return name == "" })
	return strings.Join(names, ",")
}

// Index has the manifest of each customer who has one.
type Index struct {
	Customers map[int64]Manifest `json:"customers"`

	generation int64
}

// Pair is the models in use of one customer, each nil if there is none, and the calibration,
// nil if the shipped one applies.
type Pair struct {
	Manifest    Manifest
	Detector    *learn.Detector
	Forecaster  *learn.Forecaster
	Calibration *anomaly.Calibration
}

// Bucket is where models are kept. Its methods may be called from many goroutines.
type Bucket struct{ bucket *objects.Bucket }

// Open returns a bucket without a request. STORAGE_EMULATOR_HOST, or options, name
// another server than Google's.
func Open(ctx context.Context, bucket string, options ...option.ClientOption) (*Bucket, error) {
	opened, err := objects.Open(ctx, bucket, options...)
	return &Bucket{opened}, err
}

// Close ends the connections.
func (b *Bucket) Close() error { return b.bucket.Close() }

// Index reads the index, which is empty before the first publication.
func (b *Bucket) Index(ctx context.Context) (Index, error) {
	index := Index{Customers: map[int64]Manifest{}}
	content, generation, err := b.bucket.Read(ctx, indexName)
	if errors.Is(err, storage.ErrObjectNotExist) {
		return index, nil
	}
	if err == nil {
		index.generation = generation
		err = json.Unmarshal(content, &index)
	}
	if err != nil {
		return Index{}, fmt.Errorf("index of models: %w", err)
	}
	return index, nil
}

// Manifest returns a customer's entry of the index.
func (b *Bucket) Manifest(ctx context.Context, customer int64) (Manifest, error) {
	index, err := b.Index(ctx)
	return index.Customers[customer], err
}

// Load reads the artifacts that a customer's manifest names. A damaged one, or one of an
// unknown version, is an error. bytes is their size together.
func (b *Bucket) Load(ctx context.Context, customer int64, m Manifest) (pair Pair, bytes int, err error) {
	pair.Manifest = m
	for _, kind := range []struct {
		name   string
		decode func(content []byte) error
	}{
		{m.Detector, func(c []byte) (err error) { pair.Detector, err = learn.DecodeDetector(c); return err }},
		{m.Forecaster, func(c []byte) (err error) { pair.Forecaster, err = learn.DecodeForecaster(c); return err }},
		{m.Calibration, func(c []byte) (err error) { pair.Calibration, err = anomaly.DecodeCalibration(c); return err }},
	} {
		if kind.name == "" {
			continue
		}
		err := func() (err error) {
			defer parallel.Recover(&err) // one customer's models must not end a function that serves all
			content, err := b.Artifact(ctx, customer, kind.name)
			if err != nil {
				return err
			}
			bytes += len(content)
			return kind.decode(content)
		}()
		if err != nil {
			return Pair{}, 0, fmt.Errorf("model %s: %w", kind.name, err)
		}
	}
	return pair, bytes, nil
}

func folderOf(customer int64) string {
	return folder + strconv.FormatInt(customer, 10) + "/"
}

// Artifact reads the bytes of an artifact of a customer, or returns [ErrNoArtifact].
func (b *Bucket) Artifact(ctx context.Context, customer int64, name string) ([]byte, error) {
	content, _, err := b.bucket.Read(ctx, folderOf(customer)+name+suffix)
	if errors.Is(err, storage.ErrObjectNotExist) {
		return nil, ErrNoArtifact
	}
	return content, err
}

// Publish writes a customer's new models and names them in the index in place of live, the entry of
// [Bucket.Index] before the training. A nil model keeps the live one of its kind; if both are nil nothing is
// written. Error: [ErrConflict], if another trainer has published since.
func (b *Bucket) Publish(ctx context.Context, customer int64, live Manifest, d *learn.Detector, f *learn.Forecaster, now time.Time) (Manifest, error) {
	if d == nil && f == nil {
		return live, nil
	}
	next := live
	next.Published = now.UTC()
	if d != nil {
		next.Detector = d.Info.Name
		if err := b.Write(ctx, customer, d.Info.Name, d); err != nil {
			return Manifest{}, err
		}
	}
	if f != nil {
		next.Forecaster = f.Info.Name
		if err := b.Write(ctx, customer, f.Info.Name, f); err != nil {
			return Manifest{}, err
		}
	}
	return b.update(ctx, customer, func(m Manifest) (Manifest, error) {
		if m.Version() != live.Version() || !m.Published.Equal(live.Published) {
			return m, ErrConflict
		}
		next.Calibration = m.Calibration
		return next, nil
	})
}

// PublishCalibration writes a customer's calibration under a name and names it in the index.
// An existing one of that name is of the same day and stays.
func (b *Bucket) PublishCalibration(ctx context.Context, customer int64, name string, c *anomaly.Calibration) error {
	if err := b.Write(ctx, customer, name, c); err != nil && !errors.Is(err, ErrConflict) {
		return err
	}
	_, err := b.update(ctx, customer, func(m Manifest) (Manifest, error) {
		m.Calibration = name
		return m, nil
	})
	return err
}

// Write writes an artifact of a customer. Error: [ErrConflict], if its name is taken.
func (b *Bucket) Write(ctx context.Context, customer int64, name string, artifact encoding.BinaryMarshaler) error {
	content, err := artifact.MarshalBinary()
	if err != nil {
		return fmt.Errorf("model %s: %w", name, err)
	}
	object := b.bucket.Object(folderOf(customer) + name + suffix).If(storage.Conditions{DoesNotExist: true})
	if err := objects.Write(ctx, object, "application/octet-stream", content); err != nil {
		return fmt.Errorf("model %s: %w", name, err)
	}
	return nil
}

// update changes the entry of one customer in the index. If others write the index at the
// same time, it reads it again.
func (b *Bucket) update(ctx context.Context, customer int64, change func(Manifest) (Manifest, error)) (Manifest, error) {
	for attempt := 1; ; attempt++ {
		index, err := b.Index(ctx)
		if err != nil {
			return Manifest{}, err
		}
		next, err := change(index.Customers[customer])
		if err != nil {
			return Manifest{}, err
		}
		index.Customers[customer] = next
		content, err := json.MarshalIndent(index, "", "  ")
		if err != nil {
			return Manifest{}, fmt.Errorf("index of models: %w", err)
		}
		unchanged := storage.Conditions{DoesNotExist: index.generation == 0, GenerationMatch: index.generation}
		object := b.bucket.Object(indexName).If(unchanged)
		err = objects.Write(ctx, object, "application/json", append(content, '\n'))
		if err == nil {
			return next, nil
		}
		if !errors.Is(err, ErrConflict) || attempt == indexAttempts {
			return Manifest{}, fmt.Errorf("index of models: %w", err)
		}
	}
}

// Delete removes artifacts of a customer. An absent one is not an error.
func (b *Bucket) Delete(ctx context.Context, customer int64, names ...string) error {
	for _, name := range names {
		if err := b.bucket.Object(folderOf(customer) + name + suffix).Delete(ctx); err != nil && !errors.Is(err, storage.ErrObjectNotExist) {
			return fmt.Errorf("delete model %s: %w", name, err)
		}
	}
	return nil
}

// List returns the names of all artifacts of a customer, oldest first within each kind.
func (b *Bucket) List(ctx context.Context, customer int64) ([]string, error) {
	var names []string
	found, err := b.bucket.List(ctx, folderOf(customer))
	for _, object := range found {
		if name, ok := strings.CutSuffix(strings.TrimPrefix(object, folderOf(customer)), suffix); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

// Use puts models of a customer, as [Bucket.List] names them, into use, for a roll-back to an older pair. Each
// is read first; an empty name keeps the live one of its kind. Detection and the API follow within a minute.
func (b *Bucket) Use(ctx context.Context, customer int64, detector, forecaster string, now time.Time) (Manifest, error) {
	return b.update(ctx, customer, func(m Manifest) (Manifest, error) {
		m.Published = now.UTC()
		m.Detector, m.Forecaster = cmp.Or(detector, m.Detector), cmp.Or(forecaster, m.Forecaster)
		_, _, err := b.Load(ctx, customer, m)
		return m, err
	})
}
