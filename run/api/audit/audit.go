// Package audit writes who changed what: every operation that changes something
// makes its change through [Change], or appends its entry by [Append]. The change and
// its entry are one transaction, so that neither is committed without the other.
package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/requestlog"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

// Entry is what an operation changed. Before and After are in the form that the API
// shows, without passwords, hashes, codes and keys.
type Entry struct {
	Subject string  // such as sensor:rack-1
	Before  any     // nil when it was not there
	After   any     // nil when it is gone
	Also    []Entry // further changes in the same operation
}

// Change makes a change of the caller's and appends its entry, unless nothing has
// changed: then Before and After are equal, as in the zero entry. Changes of one customer
// wait for each other, so that Before is the state that the change found. The function
// may be called several times, see [store.DB.InTx].
func Change(ctx context.Context, s *store.DB, do func(tx *store.DB) (Entry, error)) error {
	caller := auth.Caller(ctx)
	done, err := rest.WaitToChange(ctx)
	if err != nil {
		return err
	}
	defer done()
	return s.InTx(ctx, func(tx *store.DB) error {
		if err := accounts.New(tx).LockChanges(ctx, caller); err != nil {
			return err
		}
		if err := auth.Recheck(ctx, tx); err != nil {
			return err
		}
		e, err := do(tx)
		if err != nil || reflect.DeepEqual(e.Before, e.After) {
			return err
		}
		for _, entry := range append([]Entry{e}, e.Also...) {
			if err := Append(ctx, tx, caller, actorOf(ctx), entry); err != nil {
				return err
			}
		}
		return nil
	})
}

// Changed is [Change] for an operation that answers with the result of its change.
func Changed[T any](ctx context.Context, s *store.DB, do func(tx *store.DB) (T, Entry, error)) (T, error) {
	var changed T
	err := Change(ctx, s, func(tx *store.DB) (e Entry, err error) {
		changed, e, err = once(ctx, tx, do)
		return e, err
	})
	return changed, err
}

// Updated is [Changed] for an operation that updates something and answers with the result. The
// entry has the state before, from read, and after, from change, both converted by show.
func Updated[S, T any](
	ctx context.Context, s *store.DB, subject string, show func(S) T, read func(tx *store.DB) (S, error), change func(tx *store.DB, before S) (S, error),
) (T, error) {
	return Changed(ctx, s, func(tx *store.DB) (now T, e Entry, err error) {
		before, err := read(tx)
		if err != nil {
			return now, e, err
		}
		after, err := change(tx, before)
		now = show(after)
		return now, Entry{Subject: subject, Before: show(before), After: now}, err
	})
}

// once makes a change, or returns the answer to an earlier request of the same caller with
// the same Idempotency-Key, which has nothing that the caller may not see. The lock of changes
// lets concurrent requests wait for each other.
func once[T any](ctx context.Context, tx *store.DB, do func(tx *store.DB) (T, Entry, error)) (answer T, e Entry, err error) {
	repeatable, ok := rest.RepeatableOf(ctx)
	if !ok {
		return do(tx)
	}
	request := accounts.Request{CustomerID: auth.Caller(ctx), Operation: rest.OperationID(ctx), KeyHash: repeatable.KeyHashOf(actorOf(ctx).id)}
	first, err := accounts.New(tx).FirstAnswer(ctx, request)
	switch {
	case err == nil && !bytes.Equal(first.RequestHash, repeatable.RequestHash[:]):
		return answer, e, rest.ErrOtherRequest
	case err == nil:
		text, err := repeatable.Decrypt(first.Answer)
		if err != nil {
			return answer, e, err
		}
		if err := json.Unmarshal(text, &answer); err != nil {
			return answer, e, fmt.Errorf("read the first answer: %w", err)
		}
		return answer, e, nil
	case !errors.Is(err, store.ErrNotFound):
		return answer, e, err
	}
	answer, e, err = do(tx)
	if err != nil {
		return answer, e, err
	}
	text, err := rest.Encode(answer)
	if err != nil {
		return answer, e, err
	}
	return answer, e, accounts.New(tx).StoreAnswer(ctx, request, accounts.Answer{RequestHash: repeatable.RequestHash[:], Answer: repeatable.Encrypt(text)})
}

// Actor is who changes something, with a name for people.
type Actor struct{ id, name string }

// Subject names what an entry is about, such as room:3.
func Subject[ID int64 | string](kind string, id ID) string { return fmt.Sprintf("%s:%v", kind, id) }

// PersonActor is a person who changes something.
func PersonActor(p accounts.Person) Actor { return Actor{Subject("person", p.ID), p.Name} }

// GatewayActor is a gateway that changes something.
func GatewayActor(g accounts.Gateway) Actor { return Actor{Subject("gateway", g.ID), g.Name} }

func actorOf(ctx context.Context) Actor {
	if key := auth.Key(ctx); key != nil {
		return Actor{Subject("key", key.ID), key.Name}
	}
	return PersonActor(auth.Person(ctx))
}

// Append adds the entry of a change in tx to a customer's log. It is for the
// operations that have no caller; the others use [Change].
func Append(ctx context.Context, tx *store.DB, customerID int64, actor Actor, e Entry) error {
	return accounts.New(tx).Audit(ctx, accounts.AuditEntry{
		CustomerID: customerID, Actor: actor.id, ActorName: actor.name, Operation: rest.OperationID(ctx), Subject: e.Subject,
		RequestID: requestlog.RequestID(ctx), Before: e.Before, After: e.After,
	})
}

type loggedChange struct {
	ID        int64           `json:"id" doc:"Primary key; it grows." example:"311"`
	At        rest.Time       `json:"at" doc:"When, UTC." example:"2026-03-01T12:00:00Z"`
	ActorKind string          `json:"actor_kind" enum:"person,account,key,gateway,system" doc:"What kind of actor; account before accounts had persons." example:"person"`
	Actor     string          `json:"actor" doc:"Who: person:ID, key:ID, gateway:ID, or a part of the service." example:"person:7"`
	ActorName string          `json:"actor_name" doc:"Its name at that time." example:"Ana"`
	Operation string          `json:"operation" doc:"The operation of this document." example:"setThresholds"`
	Subject   string          `json:"subject" doc:"What was changed." example:"room:3"`
	RequestID string          `json:"request_id" doc:"X-Request-Id of the answer." example:"6f1d2c3b"`
	Before    json.RawMessage `json:"before" doc:"What it was; null when it was not there."`
	After     json.RawMessage `json:"after" doc:"What it is; null when it is gone."`
}

// TransformSchema allows any value before and after.
func (loggedChange) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	for field, example := range map[string]any{"before": map[string]any{"name": "Hall A"}, "after": map[string]any{"name": "Hall B"}} {
		s.Properties[field] = &huma.Schema{
			Description: s.Properties[field].Description, Examples: []any{example},
			AnyOf: []*huma.Schema{{Type: huma.TypeObject, Nullable: true}, {Type: huma.TypeArray, Nullable: true, Items: &huma.Schema{}}},
		}
	}
	return s
}

func loggedOf(c accounts.LoggedChange) loggedChange {
	return loggedChange{
		ID: c.ID, At: rest.UTC(c.At), ActorKind: kindOf(c.Actor), Actor: c.Actor, ActorName: c.ActorName, Operation: c.Operation, Subject: c.Subject,
		RequestID: c.RequestID, Before: c.Before, After: c.After,
	}
}

func kindOf(actor string) string {
	switch kind, _, _ := strings.Cut(actor, ":"); kind {
	case "customer":
		return "account"
	case "person", "key", "gateway":
		return kind
	default:
		return "system"
	}
}

type logInput struct {
	ActorKind string                      `query:"actor_kind" enum:"person,account,key,gateway,system" doc:"Only changes of this kind of actor." example:"key"`
	Actor     string                      `query:"actor" maxLength:"80" doc:"Only changes of this actor." example:"person:7"`
	Operation string                      `query:"operation" maxLength:"80" doc:"Only changes by this operation." example:"setThresholds"`
	Subject   string                      `query:"subject" maxLength:"200" doc:"Only changes of this." example:"room:3"`
	StartTime input.Timestamp             `query:"start_time" doc:"Only changes from this time on; ISO 8601, UTC where it has no offset." example:"2026-03-01T00:00:00Z"`
	EndTime   input.Timestamp             `query:"end_time" doc:"Only changes before this time; ISO 8601, UTC where it has no offset." example:"2026-03-02T00:00:00Z"`
	After     rest.Cursor[store.Position] `query:"after"`
	Limit     int                         `query:"limit" minimum:"1" maximum:"1000" doc:"How many entries at most; without, 100 as JSON, and all as CSV." example:"100"`
	Format    string                      `query:"format" enum:"json,csv" doc:"Form of the answer; it comes before the Accept header." example:"json"`
	Accept    string                      `header:"Accept" hidden:"true"`
}

// Resolve refuses a range that ends before it starts.
func (in *logInput) Resolve(huma.Context) []error { return input.CheckRange(in.StartTime, in.EndTime) }

// defaultLimit is how many entries a list has.
const defaultLimit = 100

// Handlers answer the operation on the log.
type Handlers struct {
	DB *store.DB

	rest *rest.API
}

// Register adds the operation.
func (h *Handlers) Register(r *rest.API) {
	h.rest = r
	list := &huma.Schema{Type: huma.TypeArray, Items: r.Schemas().Schema(reflect.TypeFor[loggedChange](), true, "LoggedChange")}
	// Called by the audit page, and by people who export.
	rest.Register(r, rest.Operation{
		ID: "listAuditLog", Role: rest.Viewer, Keys: rest.ReadKeys, Method: http.MethodGet, Path: "/api/v1/audit", Tag: rest.TagAudit,
		Summary:     "List who changed what, newest first",
		Description: "Nobody can change or remove an entry. CSV has the same columns; `before` and `after` are JSON in it.",
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
			rest.ContentJSON: {Schema: list},
			rest.ContentCSV:  {Schema: &huma.Schema{Type: huma.TypeString}, Example: csvHeader + "311,2026-03-01T12:00:00Z,person,person:7,Ana,deleteSensor,sensor:rack-1,6f1d2c3b,,\n"},
		}}},
	}, h.list, fairqueue.ErrNoSlot)
}

func (h *Handlers) list(ctx context.Context, in *logInput) (*rest.PageStream, error) {
	log := accounts.New(h.DB).AuditLog(auth.Caller(ctx), accounts.AuditQuery{
		ActorKind: strings.Replace(in.ActorKind, "account", "customer", 1), Actor: in.Actor, Operation: in.Operation, Subject: in.Subject,
		Start: in.StartTime.Time, End: in.EndTime.Time,
	})
	form := rest.EncodedRows(loggedOf)
	if rest.WantsCSV(in.Format, in.Accept) {
		form = rest.CSVRows(csvHeader, appendCSV)
		if in.Limit == 0 {
			total, err := log.Total(ctx)
			all := func(ctx context.Context) iter.Seq2[accounts.LoggedChange, error] { return log.Each(ctx, in.After.Last) }
			return rest.NewPageStream(h.rest, form, in.After, all, total, nil), err
		}
	}
	found, err := log.Page(ctx, store.PageRequest{After: in.After.Last, Limit: cmp.Or(in.Limit, defaultLimit)})
	return rest.NewPageStream(h.rest, form, in.After, rest.Items(found.Items), found.Total, found.Next), err
}

const csvHeader = "id,at,actor_kind,actor,actor_name,operation,subject,request_id,before,after\n"

func appendCSV(b []byte, c accounts.LoggedChange) []byte {
	l := loggedOf(c)
	return rest.AppendLine(b,
		strconv.FormatInt(l.ID, 10), string(rest.AppendTime(nil, c.At)), l.ActorKind, l.Actor, l.ActorName, l.Operation, l.Subject, l.RequestID,
		string(l.Before), string(l.After))
}
