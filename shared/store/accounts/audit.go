package accounts

import (
	"context"
	"encoding/json"
	"fmt"

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
	_, err := s.db.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('changes of ' || @customer::bigint, 0))`,
		store.Args{"customer": customerID})
	return store.Wrap(err, "lock changes of customer %d", customerID)
}

// Audit appends an entry to the audit log. Call it in the transaction of the change, so
// that neither is committed without the other. Nobody may change or delete an entry, see
// [store.Grant].
func (s Store) Audit(ctx context.Context, e AuditEntry) error {
	before, err := auditJSON(e.Before)
	if err != nil {
		return fmt.Errorf("audit %s of %s: %w", e.Operation, e.Subject, err)
	}
	after, err := auditJSON(e.After)
	if err != nil {
		return fmt.Errorf("audit %s of %s: %w", e.Operation, e.Subject, err)
	}
	_, err = s.db.Exec(ctx, `
		INSERT INTO audit_log (customer_id, actor, actor_name, operation, subject, request_id, before, after)
		VALUES (@customer, @actor, @name, @operation, @subject, @request, @before, @after)`,
		store.Args{
			"customer": e.CustomerID, "actor": e.Actor, "name": e.ActorName, "operation": e.Operation, "subject": e.Subject,
			"request": e.RequestID, "before": before, "after": after,
		})
	return store.Wrap(err, "audit %s of %s", e.Operation, e.Subject)
}

// auditJSON is NULL for nil.
func auditJSON(value any) (json.RawMessage, error) {
	if value == nil {
		return nil, nil
	}
	encoded, err := json.Marshal(value)
	return encoded, store.Wrap(err, "encode")
}
