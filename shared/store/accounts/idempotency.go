package accounts

import (
	"context"
	"time"

	"coldaisle.dev/shared/store"
)

const (
	// AnswerLifetime is how long a repeated request gets its first answer.
	AnswerLifetime = 24 * time.Hour
	// MaxAnswers bounds a customer's stored answers.
	MaxAnswers = 10_000
	// answersRemoved bounds the expired answers that one insertion removes.
	answersRemoved = 100
)

// Request identifies a customer's request that may be repeated.
type Request struct {
	CustomerID int64
	Operation  string
	KeyHash    [32]byte // of its Idempotency-Key
}

// Answer is the first answer to a request.
type Answer struct {
	RequestHash []byte // of the request's body
	Answer      []byte // encrypted
}

// FirstAnswer returns the stored answer to a request, or [store.ErrNotFound]. Call it after
// [Store.LockChanges], which serialises concurrent repeats.
func (s Store) FirstAnswer(ctx context.Context, r Request) (Answer, error) {
	return store.One[Answer](ctx, s.db, store.ErrNotFound, `
		SELECT request_hash, answer
		FROM idempotent_answers
		WHERE customer_id = @customer AND operation = @operation AND key_hash = @key AND created_at > now() - @lifetime::interval`,
		store.Args{"customer": r.CustomerID, "operation": r.Operation, "key": r.KeyHash[:], "lifetime": AnswerLifetime},
		"first answer of %s", r.Operation)
}

// StoreAnswer stores the first answer to a request, in the transaction of the change, and
// removes expired answers of all customers. Error: [store.ErrTooManyAnswers].
func (s Store) StoreAnswer(ctx context.Context, r Request, a Answer) error {
	// Rows that another transaction removes are left to it.
	if err := s.db.Exec(ctx, `
		DELETE FROM idempotent_answers
		WHERE (customer_id, operation, key_hash) IN (
		    SELECT customer_id, operation, key_hash
		    FROM idempotent_answers
		    WHERE created_at <= now() - @lifetime::interval
		    ORDER BY created_at
		    LIMIT @most
		    FOR UPDATE SKIP LOCKED)`,
		store.Args{"lifetime": AnswerLifetime, "most": answersRemoved}, "remove expired answers"); err != nil {
		return err
	}
	// A stored answer of the same key has expired.
	return s.db.Change(ctx, store.ErrTooManyAnswers, `
		INSERT INTO idempotent_answers (customer_id, operation, key_hash, request_hash, answer)
		SELECT @customer, @operation, @key, @request, @answer
		WHERE (SELECT count(*) FROM idempotent_answers
		       WHERE customer_id = @customer AND created_at > now() - @lifetime::interval) < @max
		ON CONFLICT (customer_id, operation, key_hash) DO UPDATE
		SET request_hash = excluded.request_hash, answer = excluded.answer, created_at = now()`,
		store.Args{
			"customer": r.CustomerID, "operation": r.Operation, "key": r.KeyHash[:], "request": a.RequestHash, "answer": a.Answer,
			"lifetime": AnswerLifetime, "max": MaxAnswers,
		}, "store the answer of %s", r.Operation)
}
