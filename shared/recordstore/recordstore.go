// Package recordstore keeps the monthly records of rooms in object storage, each in numbered
// revisions. The API stores and reads them. A revision is an archive and, written after it, an
// entry that names it: an archive without an entry was given to nobody.
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
	"google.golang.org/api/option"

	"coldaisle.dev/shared/objects"
)

// Revision is a stored revision of a record.
type Revision struct {
	Number     int       `json:"number"`
	Object     string    `json:"object"`      // the archive
	Digest     string    `json:"digest"`      // of its files, see [Bucket.Keep]
	MadeAt     time.Time `json:"made_at"`     // before its data were read
	LastChange int64     `json:"last_change"` // of the account's incidents at that time
	Manifest   []byte    `json:"manifest"`    // of the archive, as signed
	Signature  []byte    `json:"signature"`
}

// ErrTaken says that another revision of the number was stored meanwhile.
var ErrTaken = errors.New("another revision was stored meanwhile")

// Bucket is where records are kept. Its methods may be called from many goroutines.
type Bucket struct{ *objects.Bucket }

// Open returns a bucket without a request. STORAGE_EMULATOR_HOST, or options, name another server
// than Google's.
func Open(ctx context.Context, bucket string, options ...option.ClientOption) (*Bucket, error) {
	opened, err := objects.Open(ctx, bucket, options...)
	return &Bucket{opened}, err
}

const entrySuffix = ".json"

func entryOf(record string, number int) string {
	return fmt.Sprintf("records/%s/%04d%s", record, number, entrySuffix)
}

// Latest returns the newest revision of a record, such as 7/3/2026-11; number 0 for none.
func (b *Bucket) Latest(ctx context.Context, record string) (Revision, error) {
	stored, err := b.List(ctx, "records/"+record+"/")
	newest := ""
	for _, name := range stored {
		if strings.HasSuffix(name, entrySuffix) {
			newest = max(newest, name)
		}
	}
	if err != nil || newest == "" {
		return Revision{}, err
	}
	return b.entry(ctx, newest)
}

func (b *Bucket) entry(ctx context.Context, name string) (r Revision, err error) {
	content, _, err := b.Read(ctx, name)
	if err == nil {
		err = json.Unmarshal(content, &r)
	}
	if err != nil {
		return r, fmt.Errorf("revision %s: %w", name, err)
	}
	return r, nil
}

// Archive reads the archive of a revision.
func (b *Bucket) Archive(ctx context.Context, r Revision) (io.ReadCloser, error) {
	reader, err := b.Object(r.Object).NewReader(ctx)
	if err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	return reader, nil
}

// Write begins an archive of a record. Close stores it; if ctx ends before, it is dropped.
func (b *Bucket) Write(ctx context.Context, record string) (w io.WriteCloser, object string) {
	object = "records/" + record + "/" + rand.Text() + ".zip"
	writer := b.Object(object).If(storage.Conditions{DoesNotExist: true}).NewWriter(ctx)
	writer.ContentType = "application/zip"
	writer.ChunkSize = 1 << 20
	return writer, object
}

// Keep stores the entry of a revision whose archive is stored; storing the same revision again
// changes nothing. Error: [ErrTaken], if its number has an entry with other content.
func (b *Bucket) Keep(ctx context.Context, record string, r Revision) error {
	name := entryOf(record, r.Number)
	err := keep(ctx, b.Object(name).If(storage.Conditions{DoesNotExist: true}), r)
	if !errors.Is(err, objects.ErrConflict) {
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
	return keep(ctx, b.Object(name), stored)
}

func keep(ctx context.Context, object *storage.ObjectHandle, r Revision) error {
	content, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode revision: %w", err)
	}
	if err := objects.Write(ctx, object, "application/json", content); err != nil {
		return fmt.Errorf("store revision: %w", err)
	}
	return nil
}
