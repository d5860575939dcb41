package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"iter"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

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
	}, h.list)
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
	var row bytes.Buffer
	w := csv.NewWriter(&row)
	cells := []string{
		strconv.FormatInt(l.ID, 10), string(rest.AppendTime(nil, c.At)), l.ActorKind, l.Actor, l.ActorName, l.Operation, l.Subject, l.RequestID,
		string(l.Before), string(l.After),
	}
	for i, cell := range cells {
		cells[i] = rest.CSVText(cell)
	}
	_ = w.Write(cells) // to memory
	w.Flush()
	return append(b, row.Bytes()...)
}
