package store_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

func TestCreateCustomerNamesTheDuplicate(t *testing.T) {
	t.Parallel()
	db := open(t)
	_, err := db.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "Anna12@EXAMPLE.com", Username: "carla1", PasswordHash: "x"})
	must.Fail(t, "address in another case", err, store.ErrEmailTaken)
	_, err = db.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "c@example.com", Username: "anna12", PasswordHash: "x"})
	must.Fail(t, "username", err, store.ErrUsernameTaken)
	_, err = db.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "c@example.com", Username: "ANNA12", PasswordHash: "x"})
	must.Fail(t, "username in another case", err, store.ErrUsernameTaken)
	must.Get(db.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "s@example.com", Username: "Ährenstück", PasswordHash: "x"}))(t)
	_, err = db.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "c@example.com", Username: "ÄHRENSTÜCK", PasswordHash: "x"})
	must.Fail(t, "username in another case of letters beyond ASCII", err, store.ErrUsernameTaken)
}

// TestVersionBeforeKeepsLogins writes to customers as the version before does, and to persons:
// each sees what the other has changed of the oldest owner.
func TestVersionBeforeKeepsLogins(t *testing.T) {
	t.Parallel()
	db := open(t)
	args := pgx.NamedArgs{"id": db.anna}
	owner := must.Get(db.PersonByEmail(t.Context(), "ANNA12@example.com"))(t)
	must.Equal(t, "role", "owner", owner.Role)
	must.Equal(t, "name", "anna12", owner.Name)
	db.sql(t, `INSERT INTO persons (customer_id, name, email, password_hash, role) VALUES (@id, 'Viewer', 'v@example.com', 'v', 'viewer')`, args)
	check := func(what string, want accounts.Person) {
		t.Helper()
		must.Equal(t, what, want, must.Get(db.Person(t.Context(), db.anna, owner.ID))(t))
		old := accounts.Person{ID: owner.ID, CustomerID: db.anna, Name: want.Name, Role: "owner"}
		must.Do(t, db.pool.QueryRow(t.Context(), `SELECT username, email, password_hash, generation FROM customers WHERE id = $1`, db.anna).
			Scan(&old.Username, &old.Email, &old.PasswordHash, &old.Generation))
		must.Equal(t, what+", as the version before sees it", want, old)
	}
	db.sql(t, `UPDATE customers SET email = 'new@example.com', password_hash = 'y', generation = generation + 1, username = 'anna34' WHERE id = @id`, args)
	owner.Email, owner.PasswordHash, owner.Generation, owner.Username, owner.Name = "new@example.com", "y", owner.Generation+1, "anna34", "anna34"
	check("changed by the version before", owner)
	must.Do(t, db.UpdatePerson(t.Context(), db.anna, owner.ID, accounts.PersonChange{Name: new("Ana"), Email: new("a@example.com"), PasswordHash: new("z")}))
	must.Do(t, db.Rename(t.Context(), db.anna, "anna56"))
	owner.Email, owner.PasswordHash, owner.Generation, owner.Username, owner.Name = "a@example.com", "z", owner.Generation+1, "anna56", "Ana"
	check("changed as a person", owner)
	must.Fail(t, "a viewer's address", db.UpdatePerson(t.Context(), db.anna, owner.ID, accounts.PersonChange{Email: new("V@example.com")}), store.ErrEmailTaken)
	must.Fail(t, "another account's person", db.UpdatePerson(t.Context(), db.bruno, owner.ID, accounts.PersonChange{Role: new("viewer")}), store.ErrNoPerson)
}
