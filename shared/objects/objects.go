// Package objects is a bucket of object storage, for modelstore and recordstore. An object is
// written whole, or not at all.
package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
)

// ErrConflict says that an object does not satisfy the condition of a write.
var ErrConflict = errors.New("object changed meanwhile")

// maxBytes bounds an object that is read into memory: far more than any has.
const maxBytes = 256 << 20

// Bucket is a bucket. Its methods may be called from many goroutines.
type Bucket struct {
	*storage.BucketHandle

	client *storage.Client
}

// Open returns a bucket without a request. STORAGE_EMULATOR_HOST, or options, name
// another server than Google's.
func Open(ctx context.Context, bucket string, options ...option.ClientOption) (*Bucket, error) {
	client, err := storage.NewClient(context.WithoutCancel(ctx), append([]option.ClientOption{storage.WithJSONReads()}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("open object storage: %w", err)
	}
	return &Bucket{client.Bucket(bucket), client}, nil
}

// Close ends the connections.
func (b *Bucket) Close() error {
	if err := b.client.Close(); err != nil {
		return fmt.Errorf("close object storage: %w", err)
	}
	return nil
}

// Read reads an object into memory, with its generation. An absent one is
// [storage.ErrObjectNotExist].
func (b *Bucket) Read(ctx context.Context, name string) (content []byte, generation int64, err error) {
	reader, err := b.Object(name).NewReader(ctx)
	if err == nil {
		defer func() { _ = reader.Close() }()
		content, err = io.ReadAll(io.LimitReader(reader, maxBytes))
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read: %w", err)
	}
	return content, reader.Attrs.Generation, nil
}

// Write writes an object under the condition of its handle, or returns [ErrConflict].
func Write(ctx context.Context, object *storage.ObjectHandle, contentType string, content []byte) error {
	ctx, cancel := context.WithCancel(ctx) // canceling drops a partial write
	defer cancel()
	w := object.NewWriter(ctx)
	w.ContentType = contentType
	w.ChunkSize = 0 // in one request
	_, err := w.Write(content)
	if err == nil {
		err = w.Close()
	}
	if refused, ok := errors.AsType[*googleapi.Error](err); ok && refused.Code == http.StatusPreconditionFailed {
		return ErrConflict
	}
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// List returns the names of the objects in a folder, which ends in a slash, without those of its
// folders.
func (b *Bucket) List(ctx context.Context, folder string) ([]string, error) {
	var names []string
	for objects := b.Objects(ctx, &storage.Query{Prefix: folder, Delimiter: "/"}); ; {
		attributes, err := objects.Next()
		if errors.Is(err, iterator.Done) {
			return names, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		names = append(names, attributes.Name)
	}
}
