// Package audit writes who changed what: every operation that changes something
// makes its change through [Change], or appends its entry by [Append]. The change and
// its entry are one transaction, so that neither is committed without the other.
package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/requestlog"
	"coldaisle.dev/run/api/rest"
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
	if key, ok := auth.Key(ctx); ok {
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
