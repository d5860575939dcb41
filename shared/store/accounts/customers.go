package accounts

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/store"
)

// Customer is the account that owns rooms and sensors: the tenant.
type Customer struct {
	ID           int64
	Email        string // as given; compared without regard to case
	Username     string
	PasswordHash string // bcrypt; never leaves the API
	Generation   int64  // of the tokens that are valid; a new password raises it
}

// NewCustomer is what a registration stores.
type NewCustomer struct{ Email, Username, PasswordHash string }

// CustomerChange names what to change; nil keeps a field.
type CustomerChange struct{ Email, Username, PasswordHash *string }

const customerColumns = `customers.id, customers.email, customers.username, customers.password_hash, customers.generation`

// CreateCustomer registers a customer. Errors: [store.ErrEmailTaken],
// [store.ErrUsernameTaken].
func (s Store) CreateCustomer(ctx context.Context, c NewCustomer) (Customer, error) {
	created, err := store.One[Customer](ctx, s.db, store.ErrNoCustomer, `
		INSERT INTO customers (email, username, password_hash)
		VALUES (@email, @username, @password_hash)
		RETURNING `+customerColumns,
		pgx.StrictNamedArgs{"email": c.Email, "username": c.Username, "password_hash": c.PasswordHash})
	if err != nil {
		return Customer{}, fmt.Errorf("create customer: %w", duplicateError(err))
	}
	return created, nil
}

// duplicateError names the duplicate value that a constraint refused.
func duplicateError(err error) error {
	switch {
	case store.Violates(err, "customers_email_key"):
		return store.ErrEmailTaken
	case store.Violates(err, "customers_username_key"):
		return store.ErrUsernameTaken
	default:
		return err
	}
}

// Customer returns a customer, or [store.ErrNoCustomer].
func (s Store) Customer(ctx context.Context, id int64) (Customer, error) {
	found, err := store.One[Customer](ctx, s.db, store.ErrNoCustomer, `
		SELECT `+customerColumns+`
		FROM customers
		WHERE id = @id`,
		pgx.StrictNamedArgs{"id": id})
	return found, store.Wrap(err, "customer %d", id)
}

// CustomerByEmail returns the customer with an e-mail address, compared without regard to
// case, or [store.ErrNoCustomer].
func (s Store) CustomerByEmail(ctx context.Context, email string) (Customer, error) {
	found, err := store.One[Customer](ctx, s.db, store.ErrNoCustomer, `
		SELECT `+customerColumns+`
		FROM customers
		WHERE lower(email) = lower(@email)`,
		pgx.StrictNamedArgs{"email": email})
	return found, store.Wrap(err, "customer by email")
}

// Generations returns the generation of the valid tokens of each customer that exists.
func (s Store) Generations(ctx context.Context, customerIDs []int64) (map[int64]int64, error) {
	type row struct{ ID, Generation int64 }
	found, err := store.All[row](ctx, s.db, `
		SELECT id, generation
		FROM customers
		WHERE id = ANY(@ids)`,
		pgx.StrictNamedArgs{"ids": customerIDs})
	generations := make(map[int64]int64, len(found))
	for _, r := range found {
		generations[r.ID] = r.Generation
	}
	return generations, store.Wrap(err, "generations of %d customers", len(customerIDs))
}

// UpdateCustomer sets the given fields; a new password raises the generation. Errors:
// [store.ErrNoCustomer], [store.ErrEmailTaken], [store.ErrUsernameTaken].
func (s Store) UpdateCustomer(ctx context.Context, id int64, change CustomerChange) (Customer, error) {
	updated, err := store.One[Customer](ctx, s.db, store.ErrNoCustomer, `
		UPDATE customers
		SET email = COALESCE(@email, email),
		    username = COALESCE(@username, username),
		    password_hash = COALESCE(@password_hash, password_hash),
		    generation = generation + (@password_hash::text IS NOT NULL)::int
		WHERE id = @id
		RETURNING `+customerColumns,
		pgx.StrictNamedArgs{
			"id": id, "email": change.Email, "username": change.Username,
			"password_hash": change.PasswordHash,
		})
	if err != nil {
		return Customer{}, fmt.Errorf("update customer %d: %w", id, duplicateError(err))
	}
	return updated, nil
}
