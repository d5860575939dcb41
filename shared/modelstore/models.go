// Package modelstore keeps the learned models in object storage: artifacts that are
// never changed, and a manifest that names the pair in use. The manifest is
// written last, and only if it has not changed since it was read: nobody reads half
// a pair, and two trainers cannot mix theirs. To go back is to name an older pair.
package modelstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"

	"coldaisle.dev/shared/learn"
)

// Names in the bucket.
const (
	folder       = "models/"
	suffix       = ".bin"
	manifestName = folder + "manifest.json"
)

// maxArtifactBytes is how many bytes of an artifact are read: far more than one has.
const maxArtifactBytes = 64 << 20

var (
	// ErrNoManifest says that there is no manifest: nothing was ever published.
	ErrNoManifest = errors.New("no models have been published")
	// ErrConflict says that somebody else published meanwhile.
	ErrConflict = errors.New("other models were published meanwhile")
	// ErrNoArtifact says that there is no such artifact.
	ErrNoArtifact = errors.New("no such model")
)

// Manifest names the pair in use. An empty name is of a kind that was never
// published.
type Manifest struct {
	Detector   string    `json:"anomaly"`
	Forecaster string    `json:"forecasting"`
	Published  time.Time `json:"published"`

	generation int64
}

// Version is the pair as training runs name it: comma-separated.
func (m Manifest) Version() string {
	names := slices.DeleteFunc([]string{m.Detector, m.Forecaster}, func(name string) bool { return name == "" })
	return strings.Join(names, ",")
}

// Pair is the models in use; each is nil where there is none.
type Pair struct {
	Manifest   Manifest
	Detector   *learn.Detector
	Forecaster *learn.Forecaster
}

// Bucket is where models are kept. Its methods may be called from many
// goroutines.
type Bucket struct {
	client *storage.Client
	bucket *storage.BucketHandle
}

// Open returns a bucket without asking for it. STORAGE_EMULATOR_HOST, or options,
// name another place than Google's.
func Open(ctx context.Context, bucket string, options ...option.ClientOption) (*Bucket, error) {
	client, err := storage.NewClient(context.WithoutCancel(ctx), append([]option.ClientOption{storage.WithJSONReads()}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("open object storage: %w", err)
	}
	return &Bucket{client: client, bucket: client.Bucket(bucket)}, nil
}

// Close ends the connections.
func (b *Bucket) Close() error {
	if err := b.client.Close(); err != nil {
		return fmt.Errorf("close object storage: %w", err)
	}
	return nil
}

// Generation is the manifest's, which changes with every publication: the
// cheapest way to learn that there is something new. [ErrNoManifest] while there is no
// manifest.
func (b *Bucket) Generation(ctx context.Context) (int64, error) {
	attributes, err := b.bucket.Object(manifestName).Attrs(ctx)
	if errors.Is(err, storage.ErrObjectNotExist) {
		return 0, ErrNoManifest
	}
	if err != nil {
		return 0, fmt.Errorf("look at the manifest: %w", err)
	}
	return attributes.Generation, nil
}

// Manifest reads which pair is in use, or returns [ErrNoManifest].
func (b *Bucket) Manifest(ctx context.Context) (Manifest, error) {
	content, generation, err := b.read(ctx, manifestName)
	if errors.Is(err, storage.ErrObjectNotExist) {
		return Manifest{}, ErrNoManifest
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	m := Manifest{generation: generation}
	if err := json.Unmarshal(content, &m); err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}

// Load reads the pair of a manifest. A model that is damaged, or of a version
// that this program does not know, is an error.
func (b *Bucket) Load(ctx context.Context, m Manifest) (Pair, error) {
	pair := Pair{Manifest: m}
	if m.Detector != "" {
		content, err := b.artifact(ctx, m.Detector)
		if err != nil {
			return Pair{}, err
		}
		if pair.Detector, err = learn.DecodeDetector(content); err != nil {
			return Pair{}, fmt.Errorf("model %s: %w", m.Detector, err)
		}
	}
	if m.Forecaster != "" {
		content, err := b.artifact(ctx, m.Forecaster)
		if err != nil {
			return Pair{}, err
		}
		if pair.Forecaster, err = learn.DecodeForecaster(content); err != nil {
			return Pair{}, fmt.Errorf("model %s: %w", m.Forecaster, err)
		}
	}
	return pair, nil
}

func (b *Bucket) artifact(ctx context.Context, name string) ([]byte, error) {
	content, _, err := b.read(ctx, folder+name+suffix)
	if errors.Is(err, storage.ErrObjectNotExist) {
		err = ErrNoArtifact
	}
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", name, err)
	}
	return content, nil
}

func (b *Bucket) read(ctx context.Context, name string) ([]byte, int64, error) {
	reader, err := b.bucket.Object(name).NewReader(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("read: %w", err)
	}
	defer func() { _ = reader.Close() }()
	content, err := io.ReadAll(io.LimitReader(reader, maxArtifactBytes))
	if err != nil {
		return nil, 0, fmt.Errorf("read: %w", err)
	}
	return content, reader.Attrs.Generation, nil
}

// Publish writes new models and then a manifest that names them instead of those
// of live, which is what [Bucket.Manifest] said before the training; a nil model
// leaves the live one of its kind, and two of them write nothing. [ErrConflict] if
// somebody else published since.
func (b *Bucket) Publish(ctx context.Context, live Manifest, d *learn.Detector, f *learn.Forecaster, now time.Time) (Manifest, error) {
	if d == nil && f == nil {
		return live, nil
	}
	next := live
	next.Published = now.UTC()
	if d != nil {
		next.Detector = d.Info.Name
		if err := b.writeArtifact(ctx, d.Info.Name, d.MarshalBinary); err != nil {
			return Manifest{}, err
		}
	}
	if f != nil {
		next.Forecaster = f.Info.Name
		if err := b.writeArtifact(ctx, f.Info.Name, f.MarshalBinary); err != nil {
			return Manifest{}, err
		}
	}
	return b.writeManifest(ctx, next)
}

// writeArtifact writes an artifact, which must not be there.
func (b *Bucket) writeArtifact(ctx context.Context, name string, encode func() ([]byte, error)) error {
	content, err := encode()
	if err != nil {
		return err
	}
	object := b.bucket.Object(folder + name + suffix).If(storage.Conditions{DoesNotExist: true})
	if _, err := write(ctx, object, "application/octet-stream", content); err != nil {
		return fmt.Errorf("model %s: %w", name, err)
	}
	return nil
}

// writeManifest writes a manifest over the generation that it was read as.
func (b *Bucket) writeManifest(ctx context.Context, m Manifest) (Manifest, error) {
	content, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	object := b.bucket.Object(manifestName)
	if m.generation == 0 {
		object = object.If(storage.Conditions{DoesNotExist: true})
	} else {
		object = object.If(storage.Conditions{GenerationMatch: m.generation})
	}
	m.generation, err = write(ctx, object, "application/json", append(content, '\n'))
	if refused, ok := errors.AsType[*googleapi.Error](err); ok && refused.Code == http.StatusPreconditionFailed {
		err = ErrConflict
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}

func write(ctx context.Context, object *storage.ObjectHandle, contentType string, content []byte) (generation int64, err error) {
	ctx, cancel := context.WithCancel(ctx) // drops what is half written
	defer cancel()
	w := object.NewWriter(ctx)
	w.ContentType = contentType
	w.ChunkSize = 0 // in one request
	if _, err := w.Write(content); err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	if err := w.Close(); err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	return w.Attrs().Generation, nil
}

// List returns the names of all artifacts, oldest first within each kind.
func (b *Bucket) List(ctx context.Context) ([]string, error) {
	var names []string
	objects := b.bucket.Objects(ctx, &storage.Query{Prefix: folder})
	for {
		attributes, err := objects.Next()
		if errors.Is(err, iterator.Done) {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list models: %w", err)
		}
		if name, ok := strings.CutSuffix(strings.TrimPrefix(attributes.Name, folder), suffix); ok {
			names = append(names, name)
		}
	}
}

// Use names models, as [Bucket.List] tells them, to be in use from now on: the
// way back to an older pair. Each is read first; an empty name leaves the one of
// its kind. Detection and the API follow within a minute.
func (b *Bucket) Use(ctx context.Context, detector, forecaster string, now time.Time) (Manifest, error) {
	live, err := b.Manifest(ctx)
	if err != nil && !errors.Is(err, ErrNoManifest) {
		return Manifest{}, err
	}
	wanted := live
	wanted.Published = now.UTC()
	if detector != "" {
		wanted.Detector = detector
	}
	if forecaster != "" {
		wanted.Forecaster = forecaster
	}
	if _, err := b.Load(ctx, wanted); err != nil {
		return Manifest{}, err
	}
	return b.writeManifest(ctx, wanted)
}
