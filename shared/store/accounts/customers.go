package accounts

import (
	"context"
	"fmt"

	"coldaisle.dev/shared/store"
)

// Customer is the account that owns rooms and sensors: the tenant.
type Customer struct {
	ID       int64
	Email    string // of the oldest owner
	Username string
}

// NewCustomer is what a registration stores. It makes the customer's first owner too.
type NewCustomer struct{ Email, Username, PasswordHash string }

// Person logs in for a customer.
type Person struct {
	ID           int64
	CustomerID   int64
	Username     string // of the customer
	Name         string // what everybody is shown
	Email        string // as given; compared without regard to case
	Role         string
	PasswordHash string // bcrypt; never leaves the API
	Generation   int64  // of the tokens that are valid; a new password or role raises it
}

// PersonChange names what to change; nil keeps a field.
type PersonChange struct{ Name, Email, PasswordHash, Role *string }

// CreateCustomer registers a customer. Errors: [store.ErrEmailTaken],
// [store.ErrUsernameTaken].
func (s Store) CreateCustomer(ctx context.Context, c NewCustomer) (Customer, error) {
	// A restored backup gives the ids of later accounts once more, but not their generations: the
	// tokens of these open no other's account. Those of accepted invitations are smaller.
	created, err := store.One[Customer](ctx, s.db, store.ErrNoCustomer, `
		INSERT INTO customers (email, username, password_hash, generation)
		VALUES (@email, @username, @password_hash, 2e12::bigint + floor(random() * 1e15)::bigint)
		RETURNING id, email, username`,
		store.Args{"email": c.Email, "username": c.Username, "password_hash": c.PasswordHash})
	return created, store.Wrap(refused(err), "create customer")
}

// Rename changes a customer's user name, and the persons' names that are the same. Errors:
// [store.ErrNoCustomer], [store.ErrUsernameTaken].
func (s Store) Rename(ctx context.Context, id int64, username string) error {
	err := s.db.Change(ctx, store.ErrNoCustomer, `UPDATE customers SET username = @username WHERE id = @id`,
		store.Args{"id": id, "username": username})
	return store.Wrap(refused(err), "rename customer %d", id)
}

const selectPersons = `
	SELECT p.id, p.customer_id, c.username, p.name, p.email, p.role, p.password_hash, p.generation
	FROM persons p
	JOIN customers c ON c.id = p.customer_id`

// Person returns one of a customer's persons, or [store.ErrNoPerson].
func (s Store) Person(ctx context.Context, customerID, id int64) (Person, error) {
	found, err := store.One[Person](ctx, s.db, store.ErrNoPerson, selectPersons+`
		WHERE p.id = @id AND p.customer_id = @customer`,
		store.Args{"id": id, "customer": customerID})
	return found, store.Wrap(err, "person %d", id)
}

// PersonByEmail returns the person with an e-mail address, compared without regard to case,
// or [store.ErrNoPerson].
func (s Store) PersonByEmail(ctx context.Context, email string) (Person, error) {
	found, err := store.One[Person](ctx, s.db, store.ErrNoPerson, selectPersons+`
		WHERE lower(p.email) = lower(@email)`,
		store.Args{"email": email})
	return found, store.Wrap(err, "person by email")
}

// PersonsByID returns the persons with one of the ids, of any customer. Unknown ones are absent.
func (s Store) PersonsByID(ctx context.Context, ids []int64) (map[int64]Person, error) {
	found, err := store.All[Person](ctx, s.db, selectPersons+`
		WHERE p.id = ANY(@ids)`,
		store.Args{"ids": ids})
	if err != nil {
		return nil, fmt.Errorf("%d persons by id: %w", len(ids), err)
	}
	persons := make(map[int64]Person, len(found))
	for _, p := range found {
		persons[p.ID] = p
	}
	return persons, nil
}

// UpdatePerson sets the given fields; a new password or role raises the generation. Errors:
// [store.ErrNoPerson], [store.ErrEmailTaken].
func (s Store) UpdatePerson(ctx context.Context, customerID, id int64, change PersonChange) error {
	err := s.db.Change(ctx, store.ErrNoPerson, `
		UPDATE persons
		SET name = COALESCE(@name, name),
		    email = COALESCE(@email, email),
		    password_hash = COALESCE(@password_hash, password_hash),
		    role = COALESCE(@role, role),
		    generation = generation + (@password_hash::text IS NOT NULL OR COALESCE(@role, role) <> role)::int
		WHERE id = @id AND customer_id = @customer`,
		store.Args{
			"id": id, "customer": customerID, "name": change.Name, "email": change.Email,
			"password_hash": change.PasswordHash, "role": change.Role,
		})
	return store.Wrap(refused(err), "update person %d", id)
}
