package accounts

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/store"
)

// LoggedChange is an entry of the audit log.
type LoggedChange struct {
	ID        int64
	At        time.Time
	Actor     string // such as customer:7, key:5 or gateway:gw-abc
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
	Before                    int64     // ids below this one
	Limit                     int       // entries at most
}

// auditPage is how many entries are read at once.
const auditPage = 1000

// AuditLog yields a customer's entries, newest first. It reads them page by page and
// holds no connection between pages.
func (s Store) AuditLog(ctx context.Context, customerID int64, q AuditQuery) iter.Seq2[LoggedChange, error] {
	return func(yield func(LoggedChange, error) bool) {
		given := 0
		for {
			page := auditPage
			if q.Limit > 0 {
				page = min(page, q.Limit-given)
			}
			found, err := store.All[LoggedChange](ctx, s.db, `
				SELECT id, at, actor, operation, subject, request_id, before, after
				FROM audit_log
				WHERE customer_id = @customer AND (@before::bigint = 0 OR id < @before)
				  AND (@actor = '' OR actor = @actor) AND (@operation = '' OR operation = @operation) AND (@subject = '' OR subject = @subject)
				  AND (@kind = '' OR CASE WHEN split_part(actor, ':', 1) IN ('customer', 'key', 'gateway') THEN split_part(actor, ':', 1) ELSE 'system' END = @kind)
				  AND at >= COALESCE(@start::timestamptz, '-infinity') AND at < COALESCE(@end::timestamptz, 'infinity')
				ORDER BY id DESC
				LIMIT @page`,
				pgx.StrictNamedArgs{
					"customer": customerID, "before": q.Before, "kind": q.ActorKind, "actor": q.Actor, "operation": q.Operation, "subject": q.Subject,
					"start": store.OrNull(q.Start), "end": store.OrNull(q.End), "page": page,
				})
			if err != nil {
				yield(LoggedChange{}, fmt.Errorf("audit log of customer %d: %w", customerID, err))
				return
			}
			for _, entry := range found {
				if !yield(entry, nil) {
					return
				}
			}
			if given += len(found); len(found) < page || given == q.Limit {
				return
			}
			q.Before = found[len(found)-1].ID
		}
	}
}
