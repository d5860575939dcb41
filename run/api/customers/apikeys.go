package customers

import (
	"context"
	"net/http"
	"slices"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
)

// Fields is exported only because huma reads no embedded fields of unexported types.
type Fields struct {
	ID        int64      `json:"id" doc:"Primary key." example:"5"`
	Name      string     `json:"name" doc:"What the key is for." example:"Prometheus"`
	Prefix    string     `json:"prefix" doc:"The key's begin, to know it by." example:"cold_7Fq2"`
	Scope     string     `json:"scope" enum:"read,write,watch" doc:"What it may do; write includes read. watch is for the program on site that calls people: it reads, takes incidents, and reports that it runs." example:"read"`
	RoomIDs   []int64    `json:"room_ids" doc:"The rooms that it knows; null for all." example:"[3,4]"`
	CreatedAt rest.Time  `json:"created_at" doc:"Time of creation, UTC." example:"2026-03-01T12:00:00Z"`
	ExpiresAt *rest.Time `json:"expires_at" nullable:"true" doc:"Until when it can be used, UTC; null for ever." example:"2027-03-01T12:00:00Z"`
}

type apiKey struct {
	Fields

	LastUsedAt *rest.Time `json:"last_used_at" nullable:"true" doc:"When it was last used, UTC, to a minute; null when never." example:"2026-03-02T12:00:00Z"`
}

type createdKey struct {
	Fields

	Key string `json:"key" doc:"The key, to send as Authorization: Bearer. It is shown here and never again." example:"cold_7Fq2…"`
}

func fieldsOf(k accounts.APIKey) Fields {
	return Fields{
		ID: k.ID, Name: k.Name, Prefix: k.Prefix, Scope: k.Scope, RoomIDs: k.RoomIDs, CreatedAt: rest.UTC(k.CreatedAt), ExpiresAt: rest.OptionalUTC(k.ExpiresAt),
	}
}

type newKey struct {
	_         struct{}         `additionalProperties:"true"`
	Name      input.SingleLine `json:"name" minLength:"1" maxLength:"80" doc:"What the key is for." example:"Prometheus"`
	Scope     string           `json:"scope" enum:"read,write,watch" doc:"What it may do; write includes read. watch is for the program on site that calls people: it reads, takes incidents, and reports that it runs." example:"read"`
	RoomIDs   []int64          `json:"room_ids,omitempty" nullable:"true" minItems:"1" maxItems:"100" doc:"The caller's rooms that it knows; left out or null, all." example:"[3,4]"`
	ExpiresAt *input.Timestamp `json:"expires_at,omitempty" doc:"Until when it can be used; left out, for ever." example:"2027-03-01T12:00:00Z"`
}

type keyPath struct {
	KeyID int64 `path:"key_id" doc:"Id of one of the caller's API keys." example:"5"`
}

// createKeyRole is the least role of who makes a key.
const createKeyRole = rest.Admin

func (h *Handlers) registerKeys(r *rest.API) {
	// Without an Idempotency-Key a repeat makes a second key. The first can be revoked: its
	// text is lost with the answer.
	rest.Answer(r, rest.Operation{
		ID: "createAPIKey", Role: createKeyRole, Creates: true, Method: http.MethodPost, Path: "/api/v1/api-keys", Tag: rest.TagKeys,
		Status: http.StatusCreated, Summary: "Create an API key",
		Description: "The key is shown once, in the answer. A new password does not end it.",
	}, h.createKey, store.ErrNoRoom, store.ErrTooManyAPIKeys, errPast)
	rest.Answer(r, rest.Operation{
		ID: "listAPIKeys", Role: rest.Viewer, Method: http.MethodGet, Path: "/api/v1/api-keys", Tag: rest.TagKeys,
		Summary: "List the caller's API keys, oldest first",
	}, h.listKeys)
	rest.Register(r, rest.Operation{
		ID: "revokeAPIKey", Role: rest.Admin, Method: http.MethodDelete, Path: "/api/v1/api-keys/{key_id}", Tag: rest.TagKeys,
		Summary:     "Revoke an API key",
		Description: "It is refused at once. Incidents that it has are given back.",
	}, h.revokeKey, store.ErrNoAPIKey)
}

var errPast = rest.BadRequest("expires_at: is past")

func (h *Handlers) createKey(ctx context.Context, in *rest.Body[newKey]) (createdKey, error) {
	wanted := accounts.NewAPIKey{
		Name: string(in.Body.Name), Scope: in.Body.Scope, CreatedBy: auth.Person(ctx).ID,
		RoomIDs: slices.Compact(slices.Sorted(slices.Values(in.Body.RoomIDs))), // nil, for all rooms, of none
	}
	if in.Body.ExpiresAt != nil {
		wanted.ExpiresAt = &in.Body.ExpiresAt.Time
	}
	var out createdKey
	out.Key, wanted.Prefix, wanted.Hash = auth.NewKey()
	return audit.Changed(ctx, h.DB, func(tx *store.DB) (createdKey, audit.Entry, error) {
		if end := wanted.ExpiresAt; end != nil && !end.After(h.Clock()) {
			return createdKey{}, audit.Entry{}, errPast
		}
		created, err := accounts.New(tx).CreateAPIKey(ctx, auth.Caller(ctx), wanted)
		out.Fields = fieldsOf(created)
		return out, audit.Entry{Subject: audit.Subject("key", created.ID), After: out.Fields}, err
	})
}

func (h *Handlers) listKeys(ctx context.Context, _ *struct{}) ([]apiKey, error) {
	found, err := accounts.New(h.DB).APIKeys(ctx, auth.Caller(ctx))
	return rest.List(found, func(k accounts.APIKey) apiKey {
		return apiKey{Fields: fieldsOf(k), LastUsedAt: rest.OptionalUTC(k.LastUsedAt)}
	}), err
}

func (h *Handlers) revokeKey(ctx context.Context, in *keyPath) (*struct{}, error) {
	return nil, audit.Change(ctx, h.DB, func(tx *store.DB) (audit.Entry, error) {
		customer := auth.Caller(ctx)
		deleted, err := accounts.New(tx).DeleteAPIKey(ctx, customer, in.KeyID)
		if err == nil {
			err = incidents.New(tx).GiveBackAll(ctx, customer, auth.NameOf(deleted), auth.Who(ctx), h.Clock())
		}
		return audit.Entry{Subject: audit.Subject("key", in.KeyID), Before: fieldsOf(deleted)}, err
	})
}
