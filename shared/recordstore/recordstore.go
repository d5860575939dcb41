// Package recordstore keeps the monthly records of rooms in object storage, each in numbered
// revisions. The API stores and reads them. A revision is an archive and, written after it, an
// entry that names it: what has no entry was given to nobody.
package recordstore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
)

// Revision is a stored revision of a record.
type Revision struct {
	Number     int       `json:"number"`
	Object     string    `json:"object"`      // the archive
	Digest     string    `json:"digest"`      // of its files, see [Bucket.Keep]
	MadeAt     time.Time `json:"made_at"`     // before anything of it was read
	LastChange int64     `json:"last_change"` // of the account's incidents, then
}

// ErrTaken says that another revision of the number was stored meanwhile.
var ErrTaken = errors.New("another revision was stored meanwhile")

// Bucket is where records are kept. Its methods may be called from many goroutines.
type Bucket struct {
	client *storage.Client
	bucket *storage.BucketHandle
}

// Open returns a bucket without a request. STORAGE_EMULATOR_HOST, or options, name another server
// than Google's.
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

const entrySuffix = ".json"

func entryOf(record string, number int) string {
	return fmt.Sprintf("records/%s/%04d%s", record, number, entrySuffix)
}

// Latest returns the newest revision of a record, such as 7/3/2026-11; number 0 for none.
func (b *Bucket) Latest(ctx context.Context, record string) (Revision, error) {
	newest := ""
	for objects := b.bucket.Objects(ctx, &storage.Query{Prefix: "records/" + record + "/"}); ; {
		attributes, err := objects.Next()
		if errors.Is(err, iterator.Done) {
			break
		}
		if err != nil {
			return Revision{}, fmt.Errorf("list revisions: %w", err)
		}
		if strings.HasSuffix(attributes.Name, entrySuffix) {
			newest = max(newest, attributes.Name)
		}
	}
	if newest == "" {
		return Revision{}, nil
	}
	return b.entry(ctx, newest)
}

func (b *Bucket) entry(ctx context.Context, name string) (r Revision, err error) {
	reader, err := b.bucket.Object(name).NewReader(ctx)
	if err != nil {
		return r, fmt.Errorf("read revision: %w", err)
	}
	defer func() { _ = reader.Close() }()
	if err := json.NewDecoder(reader).Decode(&r); err != nil {
		return r, fmt.Errorf("read revision: %w", err)
	}
	return r, nil
}

// Archive reads the archive of a revision.
func (b *Bucket) Archive(ctx context.Context, r Revision) (io.ReadCloser, error) {
	reader, err := b.bucket.Object(r.Object).NewReader(ctx)
	if err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	return reader, nil
}

// Write begins an archive of a record. It is stored by Close, and dropped where ctx ends before.
func (b *Bucket) Write(ctx context.Context, record string) (w io.WriteCloser, object string) {
	object = "records/" + record + "/" + rand.Text() + ".zip"
	writer := b.bucket.Object(object).If(storage.Conditions{DoesNotExist: true}).NewWriter(ctx)
	writer.ContentType = "application/zip"
	writer.ChunkSize = 1 << 20
	return writer, object
}

// Keep stores the entry of a revision whose archive is stored, and again the one that is stored
// already and of which nothing has changed. [ErrTaken] if there is another of its number and of
// other content.
func (b *Bucket) Keep(ctx context.Context, record string, r Revision) error {
	name := entryOf(record, r.Number)
	err := b.keep(ctx, b.bucket.Object(name).If(storage.Conditions{DoesNotExist: true}), r)
	if refused, ok := errors.AsType[*googleapi.Error](err); !ok || refused.Code != 412 {
		return err
	}
	stored, err := b.entry(ctx, name)
	switch {
	case err != nil:
		return err
	case stored.Digest != r.Digest:
		return ErrTaken
	}
	stored.MadeAt, stored.LastChange = r.MadeAt, r.LastChange
	return b.keep(ctx, b.bucket.Object(name), stored)
}

func (b *Bucket) keep(ctx context.Context, object *storage.ObjectHandle, r Revision) error {
	content, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode revision: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx) // drops what is half written
	defer cancel()
	w := object.NewWriter(ctx)
	w.ContentType, w.ChunkSize = "application/json", 0
	_, err = w.Write(content)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return fmt.Errorf("store revision: %w", err)
	}
	return nil
}
