package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Customer is the account that owns rooms and sensors: the tenant.
type Customer struct {
	ID           int64
	Email        string // as given; compared without regard to case
	Username     string
	PasswordHash string // bcrypt; never leaves the API
	// TokensValidAfter is the last password change: tokens issued before it are
	// void. Zero when the password was never changed.
	TokensValidAfter time.Time
}

// NewCustomer is what a registration stores.
type NewCustomer struct{ Email, Username, PasswordHash string }

// CustomerChange names what to change; nil keeps a field. A new password hash
// voids all tokens issued before ChangedAt.
type CustomerChange struct {
	Email, Username, PasswordHash *string
	// ChangedAt is the caller's clock, the one that stamps its tokens. Zero
	// takes the database's.
	ChangedAt time.Time
}

// zeroTime is the zero time.Time in SQL.
const zeroTime = `TIMESTAMPTZ '0001-01-01 00:00:00+00'`

const customerColumns = `customers.id, customers.email, customers.username, customers.password_hash, ` + tokensValidAfter

const tokensValidAfter = `COALESCE(customers.tokens_valid_after, ` + zeroTime + `) AS tokens_valid_after`

// CreateCustomer registers a customer. Errors: [ErrEmailTaken],
// [ErrUsernameTaken].
func (s *Store) CreateCustomer(ctx context.Context, c NewCustomer) (Customer, error) {
	created, err := queryOne[Customer](ctx, s, ErrNoCustomer, `
		INSERT INTO customers (email, username, password_hash)
		VALUES (@email, @username, @password_hash)
		RETURNING `+customerColumns,
		pgx.StrictNamedArgs{"email": c.Email, "username": c.Username, "password_hash": c.PasswordHash})
	if err != nil {
		return Customer{}, fmt.Errorf("create customer: %w", duplicateError(err))
	}
	return created, nil
}

// duplicateError names the duplicate that a constraint refused.
func duplicateError(err error) error {
	switch {
	case violates(err, "customers_email_key"):
		return ErrEmailTaken
	case violates(err, "customers_username_key"):
		return ErrUsernameTaken
	default:
		return err
	}
}

// Customer returns a customer, or [ErrNoCustomer].
func (s *Store) Customer(ctx context.Context, id int64) (Customer, error) {
	found, err := queryOne[Customer](ctx, s, ErrNoCustomer, `
		SELECT `+customerColumns+`
		FROM customers
		WHERE id = @id`,
		pgx.StrictNamedArgs{"id": id})
	return found, wrap(err, "customer %d", id)
}

// CustomerByEmail returns who signs in with an address, in any case of its
// letters, or [ErrNoCustomer].
func (s *Store) CustomerByEmail(ctx context.Context, email string) (Customer, error) {
	found, err := queryOne[Customer](ctx, s, ErrNoCustomer, `
		SELECT `+customerColumns+`
		FROM customers
		WHERE lower(email) = lower(@email)`,
		pgx.StrictNamedArgs{"email": email})
	return found, wrap(err, "customer by email")
}

// TokensValidAfter returns the instant before which a customer's tokens are
// void, or [ErrNoCustomer]. Every request with a token asks it.
func (s *Store) TokensValidAfter(ctx context.Context, id int64) (time.Time, error) {
	var instant time.Time
	err := s.pool.QueryRow(ctx, `
		SELECT `+tokensValidAfter+`
		FROM customers
		WHERE id = @id`,
		pgx.StrictNamedArgs{"id": id}).Scan(&instant)
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, ErrNoCustomer
	}
	return instant, wrap(err, "tokens of customer %d", id)
}

// UpdateCustomer changes what is named. Errors: [ErrNoCustomer],
// [ErrEmailTaken], [ErrUsernameTaken].
func (s *Store) UpdateCustomer(ctx context.Context, id int64, change CustomerChange) (Customer, error) {
	var changedAt *time.Time
	if !change.ChangedAt.IsZero() {
		changedAt = &change.ChangedAt
	}
	updated, err := queryOne[Customer](ctx, s, ErrNoCustomer, `
		UPDATE customers
		SET email = COALESCE(@email, email),
		    username = COALESCE(@username, username),
		    -- A customer who has the same name as an older one keeps it until they change it.
		    username_shared = username_shared AND COALESCE(@username, username) = username,
		    password_hash = COALESCE(@password_hash, password_hash),
		    tokens_valid_after = CASE
		        WHEN @password_hash::text IS NULL THEN tokens_valid_after
		        ELSE GREATEST(tokens_valid_after, COALESCE(@changed_at, clock_timestamp()))
		    END
		WHERE id = @id
		RETURNING `+customerColumns,
		pgx.StrictNamedArgs{
			"id": id, "email": change.Email, "username": change.Username,
			"password_hash": change.PasswordHash, "changed_at": changedAt,
		})
	if err != nil {
		return Customer{}, fmt.Errorf("update customer %d: %w", id, duplicateError(err))
	}
	return updated, nil
}
