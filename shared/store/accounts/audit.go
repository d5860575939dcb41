package accounts

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"coldaisle.dev/shared/store"
)

// AuditEntry says who changed what.
type AuditEntry struct {
	CustomerID int64
	Actor      string // person, key or gateway, such as person:7 or gateway:gw-abc
	ActorName  string // its name then
	Operation  string // as the API names it
	Subject    string // what was changed, such as sensor:rack-1
	RequestID  string
	Before     any // what it was, as JSON; nil when it was not there
	After      any // what it is now, as JSON; nil when it is gone
}

// LockChanges serialises the changes of a customer until the transaction ends, so that a
// change applies to exactly what it has read. Call it first in a transaction of
// [store.DB.InTx].
func (s Store) LockChanges(ctx context.Context, customerID int64) error {
	return s.db.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('changes of ' || @customer::bigint, 0))`,
		store.Args{"customer": customerID}, "lock changes of customer %d", customerID)
}

// Audit appends an entry to the audit log. Call it in the transaction of the change, so
// that neither is committed without the other. Nobody may change or delete an entry, see
// [store.Grant].
func (s Store) Audit(ctx context.Context, e AuditEntry) error {
	return s.db.Exec(ctx, `
		INSERT INTO audit_log (customer_id, actor, actor_name, operation, subject, request_id, before, after)
		VALUES (@customer, @actor, @name, @operation, @subject, @request, @before, @after)`,
		store.Args{
			"customer": e.CustomerID, "actor": e.Actor, "name": e.ActorName, "operation": e.Operation, "subject": e.Subject,
			"request": e.RequestID, "before": e.Before, "after": e.After,
		}, "audit %s of %s", e.Operation, e.Subject)
}

// LoggedChange is an entry of the audit log.
type LoggedChange struct {
	ID        int64
	At        time.Time
	Actor     string // such as person:7, key:5 or gateway:gw-abc; customer:7 before there were persons
	ActorName string // its name then
	Operation string
	Subject   string
	RequestID string
	Before    json.RawMessage // nil when it was not there
	After     json.RawMessage // nil when it is gone
}

// AuditQuery selects entries of [Store.AuditLog]. Zero fields select all.
type AuditQuery struct {
	ActorKind                 string // what an actor begins with, before the colon; "system" for all others
	Actor, Operation, Subject string
	Start, End                time.Time // End excluded
}

// AuditLog lists a customer's entries, newest first.
func (s Store) AuditLog(customerID int64, q AuditQuery) store.List[LoggedChange] {
	return store.List[LoggedChange]{
		DB: s.db, Subject: fmt.Sprintf("audit log of customer %d", customerID), Time: "at", ID: "id",
		Columns: `id, at, actor, COALESCE(NULLIF(actor_name, ''), actor) AS actor_name, operation, subject, request_id, before, after`,
		From: `
		FROM audit_log
		WHERE customer_id = @customer
		  AND (@actor = '' OR actor = @actor) AND (@operation = '' OR operation = @operation) AND (@subject = '' OR subject = @subject)
		  AND (@kind = '' OR CASE WHEN split_part(actor, ':', 1) IN ('customer', 'person', 'key', 'gateway') THEN split_part(actor, ':', 1) ELSE 'system' END = @kind)
		  AND at >= COALESCE(@start::timestamptz, '-infinity') AND at < COALESCE(@end::timestamptz, 'infinity')`,
		Args: store.Args{
			"customer": customerID, "kind": q.ActorKind, "actor": q.Actor, "operation": q.Operation, "subject": q.Subject,
			"start": store.OrNull(q.Start), "end": store.OrNull(q.End),
		},
		At: func(c LoggedChange) store.Position { return store.Position{Time: c.At, ID: c.ID} },
	}
}
