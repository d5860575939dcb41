// Package records has the operations on the monthly records of rooms: signed archives that an
// auditor verifies without this service (docs/records.md).
//
// The record of a month that is over is stored before anybody has all of it. If readings have come
// late, the next request makes another revision.
package records

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/recordstore"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/records"
)

// Handlers answer the operations. Without keys or a bucket there are no records.
type Handlers struct {
	DB       *store.DB
	Readings readings.Reader
	Keys     *Keys
	Bucket   *recordstore.Bucket
	Clock    func() time.Time

	rest  *rest.API
	turns *fairqueue.Queue[int64] // one record is made at a time, because it occupies a processor; see [client]
}

// clockSlack is how far the clocks of the API and the database may differ.
const clockSlack = time.Minute

// contentZIP is the type of a record.
const contentZIP = "application/zip"

// Register adds the operations.
func (h *Handlers) Register(r *rest.API) {
	h.rest, h.turns = r, newTurns()
	// Called by auditors, and by people once a month. A repeat gets the same bytes.
	rest.Register(r, rest.Operation{
		ID: "getRecord", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/records/{room_id}/{month}", Tag: rest.TagRecords,
		Summary: "Download the signed record of a room's month",
		Description: "A ZIP of readings, incidents, drills, calibrations, rules, changes and coverage, with a manifest of their SHA-256 and its Ed25519 signature. " +
			"Months are in UTC. The record of a month that is not over says so and is not stored. Records of deleted rooms remain.",
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{contentZIP: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}}},
	}, h.record, store.ErrNoRoom, errFuture, errBefore, errNoRecords, &readings.LimitError{Purpose: readings.Export}, fairqueue.ErrNoSlot)
	// Called to verify a record, without an account.
	rest.Answer(r, rest.Operation{
		ID: "listRecordKeys", Public: true, Method: http.MethodGet, Path: "/api/v1/records/keys", Tag: rest.TagRecords,
		Summary: "List the keys that sign records, retired ones included",
	}, h.listKeys)
}

var (
	errFuture    = rest.BadRequest("month: is in the future")
	errBefore    = rest.NotFound("The room was not there in this month")
	errNoRecords = rest.NotFound("Records are not set up: the service has no key to sign them with")
)

type recordKey struct {
	ID        string     `json:"key_id" doc:"Identifier: the first 16 hexadecimal digits of the SHA-256 of the public key." example:"3f2a9c0b7d61e845"`
	PublicKey string     `json:"public_key" doc:"The Ed25519 public key, as SubjectPublicKeyInfo in base64." example:"MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="`
	From      rest.Time  `json:"valid_from" doc:"Since when it signs, UTC." example:"2026-11-01T00:00:00Z"`
	Until     *rest.Time `json:"valid_until" nullable:"true" doc:"Until when it signed, UTC; null for the one that signs." example:"2027-11-01T00:00:00Z"`
}

func (h *Handlers) listKeys(context.Context, *struct{}) ([]recordKey, error) {
	if h.Keys == nil {
		return []recordKey{}, nil
	}
	return rest.List(h.Keys.known, func(k key) recordKey {
		return recordKey{
			ID: k.id, PublicKey: base64.StdEncoding.EncodeToString(k.public), From: rest.UTC(k.from), Until: rest.OptionalUTC(store.OrNull(k.until)),
		}
	}), nil
}

type recordInput struct {
	RoomID int64  `path:"room_id" minimum:"1" doc:"Primary key of one of the caller's rooms, which may be deleted." example:"3"`
	Month  string `path:"month" pattern:"^[0-9]{4}-(0[1-9]|1[0-2])$" doc:"The month, of UTC." example:"2026-11"`
}

func (h *Handlers) record(ctx context.Context, in *recordInput) (*huma.StreamResponse, error) {
	customer, now := auth.Caller(ctx), h.Clock().UTC()
	if h.Keys == nil || h.Bucket == nil {
		return nil, errNoRecords
	}
	s := records.New(h.DB)
	room, err := s.Room(ctx, customer, in.RoomID)
	if err != nil {
		return nil, err
	}
	start, err := time.Parse("2006-01", in.Month)
	if err != nil {
		return nil, rest.BadRequest("month: expected YYYY-MM")
	}
	r := record{customer: customer, room: room, month: in.Month, start: start, end: start.AddDate(0, 1, 0)}
	r.over = !now.Before(r.end)
	switch {
	case start.After(now):
		return nil, errFuture
	case !room.CreatedAt.Before(r.end), room.DeletedAt != nil && !room.DeletedAt.After(start):
		return nil, errBefore
	case !r.over:
		r.end = now.Truncate(time.Second)
	}
	name := fmt.Sprintf("record-%d-%s", room.RoomID, in.Month)
	if !r.over {
		return h.stream(name+"-until-"+r.end.Format("2006-01-02"), func(ctx context.Context, w io.Writer) error { return h.unstored(ctx, w, r) }), nil //nolint:contextcheck // it gets the stream's
	}
	stored, err := h.Bucket.Latest(ctx, r.path())
	if err != nil {
		return nil, err
	}
	if stored.Number > 0 {
		changed, err := s.ChangedSince(ctx, customer, room.RoomID, r.start, r.end, stored.MadeAt.Add(-clockSlack), stored.LastChange)
		if err != nil {
			return nil, err
		}
		if !changed {
			return h.stream(name, func(ctx context.Context, w io.Writer) error { return h.copy(ctx, w, stored) }), nil //nolint:contextcheck // it gets the stream's
		}
	}
	return h.stream(name, func(ctx context.Context, w io.Writer) error { return h.store(ctx, w, r, stored) }), nil //nolint:contextcheck // it gets the stream's
}

// path is the name of a record in the bucket.
func (r record) path() string { return fmt.Sprintf("%d/%d/%s", r.customer, r.room.RoomID, r.month) }

func (h *Handlers) stream(name string, write func(ctx context.Context, w io.Writer) error) *huma.StreamResponse {
	return rest.File(h.rest, contentZIP, name+".zip", write)
}

// newTurns returns the turns of records. Accounts alternate, so that one that asks for many keeps no other waiting.
func newTurns() *fairqueue.Queue[int64] {
	return fairqueue.New[int64](fairqueue.Limits{Slots: 1, MaxWaiting: [2]int{math.MaxInt}, MaxWait: math.MaxInt64})
}

// read waits for its turn and reads the record without readings; done gives the turn to the next.
func (h *Handlers) read(ctx context.Context, r *record) (done func(), err error) {
	if done, err = h.turns.Acquire(ctx, fairqueue.Unknown, r.customer); err != nil {
		return func() {}, err //nolint:wrapcheck // it says what it waited for
	}
	s := records.New(h.DB)
	if r.members, err = s.Members(ctx, r.customer, r.room.RoomID, r.start, r.end); err == nil {
		r.files, err = s.Files(ctx, r.customer, r.room.RoomID, r.start, r.end)
	}
	return done, err
}

func (r record) archive(w io.Writer) *archive { return &archive{zip: zip.NewWriter(w), at: r.end} }

// unstored writes the record of a month that is not over.
func (h *Handlers) unstored(ctx context.Context, w io.Writer, r record) error {
	done, err := h.read(ctx, &r)
	defer done()
	if err != nil {
		return err
	}
	a := r.archive(client{w, h.turns, r.customer, done})
	if _, err := a.content(ctx, r, h.Readings); err != nil {
		return err
	}
	manifest, signature, err := a.sign(r, h.Keys)
	if err != nil {
		return err
	}
	return a.finish(manifest, signature)
}

func (h *Handlers) copy(ctx context.Context, w io.Writer, stored recordstore.Revision) error {
	archive, err := h.Bucket.Archive(ctx, stored)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }()
	_, err = io.Copy(w, archive)
	return err //nolint:wrapcheck // either's, and nothing is added
}

// store writes the record of a month that is over to the client and to the bucket. The client gets
// the signature once the record is stored, so that nobody has a signed revision that is not.
func (h *Handlers) store(ctx context.Context, w io.Writer, r record, stored recordstore.Revision) error {
	next := recordstore.Revision{Number: stored.Number + 1, MadeAt: h.Clock().UTC()}
	var err error
	if next.LastChange, err = incidents.New(h.DB).LastChange(ctx, r.customer); err != nil {
		return err
	}
	done, err := h.read(ctx, &r)
	defer done()
	if err != nil {
		return err
	}
	writing, drop := context.WithCancel(ctx)
	defer drop()
	object, name := h.Bucket.Write(writing, r.path())
	next.Object = name
	to := &fork{client{w, h.turns, r.customer, done}, object}
	a := r.archive(to)
	if next.Digest, err = a.content(ctx, r, h.Readings); err != nil {
		return err
	}
	if err := a.zip.Flush(); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	// Only copies came late: it is the stored revision, with its manifest, whatever key and room's name are now.
	if next.Digest == stored.Digest && stored.Manifest != nil {
		next.Number = stored.Number
		drop()
		to.object = io.Discard
		if err := a.finish(stored.Manifest, stored.Signature); err != nil {
			return err
		}
		return h.Bucket.Keep(ctx, r.path(), next)
	}
	r.revision = next.Number
	var tail bytes.Buffer
	to.client = &tail
	if next.Manifest, next.Signature, err = a.sign(r, h.Keys); err != nil {
		return err
	}
	if err := a.finish(next.Manifest, next.Signature); err != nil {
		return err
	}
	if err := object.Close(); err != nil {
		return fmt.Errorf("store record: %w", err)
	}
	if err := h.Bucket.Keep(ctx, r.path(), next); err != nil {
		if errors.Is(err, recordstore.ErrTaken) {
			return rest.NewError(http.StatusServiceUnavailable, "The record changed meanwhile; try again")
		}
		return err
	}
	_, err = w.Write(tail.Bytes())
	return err //nolint:wrapcheck // the client has gone
}

// client writes to the caller who downloads a record. During a write another record has the turn,
// so that a client that does not read blocks nobody.
type client struct {
	io.Writer

	turns    *fairqueue.Queue[int64]
	customer int64
	done     func()
}

func (c client) Write(part []byte) (int, error) {
	c.done()
	defer func() { _, _ = c.turns.Acquire(context.Background(), fairqueue.Unknown, c.customer) }() // however long it takes
	return c.Writer.Write(part)                                                                    //nolint:wrapcheck // a writer passes its base's errors on
}

// fork writes to both.
type fork struct{ client, object io.Writer }

func (f *fork) Write(part []byte) (int, error) {
	if _, err := f.object.Write(part); err != nil {
		return 0, fmt.Errorf("store record: %w", err)
	}
	return f.client.Write(part) //nolint:wrapcheck // the client has gone
}
