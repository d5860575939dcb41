// Package audit writes who changed what: every operation that changes something
// makes its change through [Change], or appends its entry by [Append]. The change
// and its entry are one transaction, so that neither is kept without the other.
package audit

import (
	"context"
	"reflect"
	"strconv"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/requestlog"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store"
)

// Entry is what an operation changed. Before and After are what the API shows of
// it: never a password, a hash, a code or a key.
type Entry struct {
	Subject string  // such as sensor:rack-1
	Before  any     // nil when it was not there
	After   any     // nil when it is gone
	Also    []Entry // what changed with it
}

// Change makes a change of the caller's and appends its entry, unless nothing has
// changed: Before and After are the same, as in the zero entry. Changes of one customer
// wait for each other, so that Before is what the change found. The function may be
// called several times, see [store.Store.InTx].
func Change(ctx context.Context, s *store.Store, do func(tx *store.Store) (Entry, error)) error {
	caller := auth.Caller(ctx)
	return s.InTx(ctx, func(tx *store.Store) error {
		if err := tx.LockChanges(ctx, caller); err != nil {
			return err
		}
		e, err := do(tx)
		if err != nil || reflect.DeepEqual(e.Before, e.After) {
			return err
		}
		for _, entry := range append([]Entry{e}, e.Also...) {
			if err := Append(ctx, tx, caller, actor(ctx), entry); err != nil {
				return err
			}
		}
		return nil
	})
}

// Changed is [Change] for an operation that answers what it made or changed.
func Changed[T any](ctx context.Context, s *store.Store, do func(tx *store.Store) (T, Entry, error)) (T, error) {
	var changed T
	err := Change(ctx, s, func(tx *store.Store) (e Entry, err error) {
		changed, e, err = do(tx)
		return e, err
	})
	return changed, err
}

// CustomerActor names a customer who changes something.
func CustomerActor(id int64) string { return "customer:" + strconv.FormatInt(id, 10) }

// KeyActor names an API key that changes something.
func KeyActor(id int64) string { return "key:" + strconv.FormatInt(id, 10) }

// actor names the caller.
func actor(ctx context.Context) string {
	if key, ok := auth.Key(ctx); ok {
		return KeyActor(key.ID)
	}
	return CustomerActor(auth.Caller(ctx))
}

// Append adds the entry of a change in tx to a customer's log. It is for the
// operations that have no caller; the others use [Change].
func Append(ctx context.Context, tx *store.Store, customerID int64, actor string, e Entry) error {
	return tx.Audit(ctx, store.AuditEntry{
		CustomerID: customerID, Actor: actor, Operation: rest.OperationID(ctx), Subject: e.Subject,
		RequestID: requestlog.RequestID(ctx), Before: e.Before, After: e.After,
	})
}
