package accounts

import (
	"context"
	"crypto/rand"
	"time"

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
	return store.One[Customer](ctx, s.db, store.ErrNoCustomer, `
		INSERT INTO customers (email, username, password_hash, generation)
		VALUES (@email, @username, @password_hash, 2e12::bigint + floor(random() * 1e15)::bigint)
		RETURNING id, email, username`,
		store.Args{"email": c.Email, "username": c.Username, "password_hash": c.PasswordHash}, "create customer")
}

// Rename changes a customer's user name, and the persons' names that are the same. Errors:
// [store.ErrNoCustomer], [store.ErrUsernameTaken].
func (s Store) Rename(ctx context.Context, id int64, username string) error {
	return s.db.Change(ctx, store.ErrNoCustomer, `UPDATE customers SET username = @username WHERE id = @id`,
		store.Args{"id": id, "username": username}, "rename customer %d", id)
}

const selectPersons = `
	SELECT p.id, p.customer_id, c.username, p.name, p.email, p.role, p.password_hash, p.generation
	FROM persons p
	JOIN customers c ON c.id = p.customer_id`

// Person returns one of a customer's persons, or [store.ErrNoPerson].
func (s Store) Person(ctx context.Context, customerID, id int64) (Person, error) {
	return store.One[Person](ctx, s.db, store.ErrNoPerson, selectPersons+`
		WHERE p.id = @id AND p.customer_id = @customer`,
		store.Args{"id": id, "customer": customerID}, "person %d", id)
}

// PersonByEmail returns the person with an e-mail address, compared without regard to case,
// or [store.ErrNoPerson].
func (s Store) PersonByEmail(ctx context.Context, email string) (Person, error) {
	return store.One[Person](ctx, s.db, store.ErrNoPerson, selectPersons+`
		WHERE lower(p.email) = lower(@email)`,
		store.Args{"email": email}, "person by email")
}

// PersonsByID returns the persons with one of the ids, of any customer. Unknown ones are absent.
func (s Store) PersonsByID(ctx context.Context, ids []int64) (map[int64]Person, error) {
	found, err := store.All[Person](ctx, s.db, selectPersons+`
		WHERE p.id = ANY(@ids)`,
		store.Args{"ids": ids}, "%d persons by id", len(ids))
	persons := make(map[int64]Person, len(found))
	for _, p := range found {
		persons[p.ID] = p
	}
	return persons, err
}

// UpdatePerson sets the given fields; a new password or role raises the generation. Errors:
// [store.ErrNoPerson], [store.ErrEmailTaken].
func (s Store) UpdatePerson(ctx context.Context, customerID, id int64, change PersonChange) error {
	return s.db.Change(ctx, store.ErrNoPerson, `
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
		}, "update person %d", id)
}

const (
	// InvitationTime is how long an invitation is valid.
	InvitationTime = 72 * time.Hour
	// MaxPersons is how many persons a customer may have, open invitations included.
	MaxPersons = 200
)

// Invitation lets somebody become a person of a customer, by its code.
type Invitation struct {
	ID         int64
	CustomerID int64
	Username   string // of the customer
	Email      string
	Role       string
	InvitedBy  string // name
	ExpiresAt  time.Time
}

const selectInvitations = `
	SELECT i.id, i.customer_id, c.username, i.email, i.role, p.name AS invited_by, i.expires_at
	FROM invitations i
	JOIN customers c ON c.id = i.customer_id
	JOIN persons p ON p.id = i.invited_by
	WHERE i.expires_at > now()`

// Persons lists a customer's persons, oldest first.
func (s Store) Persons(ctx context.Context, customerID int64) ([]Person, error) {
	return store.All[Person](ctx, s.db, selectPersons+` WHERE p.customer_id = @customer ORDER BY p.id`,
		store.Args{"customer": customerID}, "persons of customer %d", customerID)
}

const revokeCodes = `UPDATE gateways SET revoked_at = now() WHERE created_by = @id AND enrolled_at IS NULL AND revoked_at IS NULL`

// SetRole changes a person's role, raises the generation, and revokes the person's invitations,
// and unused enrolment codes that the new role could not make. Call it after [Store.LockChanges]. Errors: [store.ErrNoPerson], [store.ErrLastOwner].
func (s Store) SetRole(ctx context.Context, customerID, id int64, role string) error {
	if err := s.requireOwner(ctx, customerID, id, role); err != nil {
		return err
	}
	if err := s.UpdatePerson(ctx, customerID, id, PersonChange{Role: &role}); err != nil {
		return err
	}
	return s.db.Exec(ctx, `
		WITH codes AS (`+revokeCodes+` AND @role NOT IN ('admin', 'owner'))
		DELETE FROM invitations WHERE invited_by = @id`, store.Args{"id": id, "role": role}, "revoke codes of person %d", id)
}

// requireOwner refuses a role that would leave the customer without an owner.
func (s Store) requireOwner(ctx context.Context, customerID, id int64, role string) error {
	others, err := store.Value[bool](ctx, s.db, store.ErrNoPerson, `
		SELECT @role = 'owner' OR role <> 'owner'
		    OR EXISTS (SELECT FROM persons o WHERE o.customer_id = @customer AND o.role = 'owner' AND o.id <> @id)
		FROM persons
		WHERE id = @id AND customer_id = @customer`,
		store.Args{"id": id, "customer": customerID, "role": role}, "owners besides person %d", id)
	if err == nil && !others {
		err = store.ErrLastOwner
	}
	return err
}

// DeletePerson removes a person with the person's invitations and unused enrolment codes, and
// returns the API keys that the person made, which stay. Call it after [Store.LockChanges].
// Errors: [store.ErrNoPerson], [store.ErrLastOwner].
func (s Store) DeletePerson(ctx context.Context, customerID, id int64) ([]APIKey, error) {
	if err := s.requireOwner(ctx, customerID, id, ""); err != nil {
		return nil, err
	}
	keys, err := s.APIKeysBy(ctx, customerID, id)
	if err != nil {
		return nil, err
	}
	args := store.Args{"id": id}
	if err := s.db.Exec(ctx, revokeCodes, args, "revoke codes of person %d", id); err != nil {
		return nil, err
	}
	return keys, s.db.Exec(ctx, `DELETE FROM persons WHERE id = @id`, args, "delete person %d", id)
}

// CreateInvitation invites an e-mail address, and returns the code, which cannot be read
// again. It also removes expired invitations of all customers. Call it after
// [Store.LockChanges]. Errors: [store.ErrEmailTaken], [store.ErrTooManyPersons].
func (s Store) CreateInvitation(ctx context.Context, by Person, email, role string) (Invitation, string, error) {
	if err := s.db.Exec(ctx, `DELETE FROM invitations WHERE expires_at <= now()`, nil, "remove old invitations"); err != nil {
		return Invitation{}, "", err
	}
	code := rand.Text() // 130 bits in base32
	type counts struct{ Taken, Full bool }
	found, err := store.One[counts](ctx, s.db, store.ErrNoCustomer, `
		SELECT EXISTS (SELECT FROM persons WHERE lower(email) = lower(@email)) AS taken,
		       (SELECT count(*) FROM persons WHERE customer_id = @customer)
		           + (SELECT count(*) FROM invitations WHERE customer_id = @customer) >= @most AS full`,
		store.Args{"customer": by.CustomerID, "email": email, "most": MaxPersons},
		"persons of customer %d", by.CustomerID)
	switch {
	case err != nil:
	case found.Taken:
		err = store.ErrEmailTaken
	case found.Full:
		err = store.ErrTooManyPersons
	}
	if err != nil {
		return Invitation{}, "", err
	}
	id, err := store.Value[int64](ctx, s.db, store.ErrNoInvitation, `
		INSERT INTO invitations (customer_id, email, role, code_hash, invited_by, expires_at)
		VALUES (@customer, @email, @role, @hash, @by, now() + @valid::interval)
		RETURNING id`,
		store.Args{
			"customer": by.CustomerID, "email": email, "role": role, "hash": store.CodeHash(code), "by": by.ID, "valid": InvitationTime,
		}, "invite into customer %d", by.CustomerID)
	if err != nil {
		return Invitation{}, "", err
	}
	created, err := s.Invitation(ctx, by.CustomerID, id)
	return created, code, err
}

// Invitations lists a customer's valid invitations, oldest first.
func (s Store) Invitations(ctx context.Context, customerID int64) ([]Invitation, error) {
	return store.All[Invitation](ctx, s.db, selectInvitations+` AND i.customer_id = @customer ORDER BY i.id`,
		store.Args{"customer": customerID}, "invitations of customer %d", customerID)
}

// Invitation returns one of a customer's valid invitations, or [store.ErrNoInvitation].
func (s Store) Invitation(ctx context.Context, customerID, id int64) (Invitation, error) {
	return store.One[Invitation](ctx, s.db, store.ErrNoInvitation, selectInvitations+` AND i.customer_id = @customer AND i.id = @id`,
		store.Args{"customer": customerID, "id": id}, "invitation %d", id)
}

// InvitationByCode returns the valid invitation of a code, or [store.ErrNoInvitation].
func (s Store) InvitationByCode(ctx context.Context, code string) (Invitation, error) {
	return store.One[Invitation](ctx, s.db, store.ErrNoInvitation, selectInvitations+` AND i.code_hash = @hash`,
		store.Args{"hash": store.CodeHash(code)}, "invitation of a code")
}

// DeleteInvitation revokes one of a customer's invitations, or returns [store.ErrNoInvitation].
func (s Store) DeleteInvitation(ctx context.Context, customerID, id int64) error {
	return s.db.Change(ctx, store.ErrNoInvitation, `DELETE FROM invitations WHERE id = @id AND customer_id = @customer`,
		store.Args{"id": id, "customer": customerID}, "delete invitation %d", id)
}

// AcceptInvitation creates the person of a code and consumes it, with all others to the same address:
// after the person's removal they would lead back in. Of concurrent callers one succeeds.
// Errors: [store.ErrNoInvitation], [store.ErrEmailTaken].
func (s Store) AcceptInvitation(ctx context.Context, code, name, passwordHash string) (Person, error) {
	type row struct{ CustomerID, ID int64 }
	// A generation that no account has: the version before looks at nothing else, and knows no roles.
	created, err := store.One[row](ctx, s.db, store.ErrNoInvitation, `
		WITH used AS (
		    DELETE FROM invitations i USING invitations u
		    WHERE u.code_hash = @hash AND u.expires_at > now() AND i.customer_id = u.customer_id AND lower(i.email) = lower(u.email)
		    RETURNING i.customer_id, i.email, i.role, i.code_hash
		)
		INSERT INTO persons (customer_id, name, email, password_hash, role, generation)
		SELECT customer_id, @name, email, @password_hash, role, 1000000 + floor(random() * 1e12)::bigint
		FROM used WHERE code_hash = @hash
		RETURNING customer_id, id`,
		store.Args{"hash": store.CodeHash(code), "name": name, "password_hash": passwordHash}, "accept invitation")
	if err != nil {
		return Person{}, err
	}
	return s.Person(ctx, created.CustomerID, created.ID)
}
