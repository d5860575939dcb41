package store_test

import (
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

func TestCreateCustomerNamesTheDuplicate(t *testing.T) {
	t.Parallel()
	db := open(t)
	_, err := db.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "Anna12@EXAMPLE.com", Username: "carla1", PasswordHash: "x"})
	mustFail(t, "address in another case", err, store.ErrEmailTaken)
	_, err = db.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "c@example.com", Username: "anna12", PasswordHash: "x"})
	mustFail(t, "username", err, store.ErrUsernameTaken)
	_, err = db.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "c@example.com", Username: "ANNA12", PasswordHash: "x"})
	mustFail(t, "username in another case", err, store.ErrUsernameTaken)
	must.Get(db.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "s@example.com", Username: "Ährenstück", PasswordHash: "x"}))(t)
	_, err = db.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "c@example.com", Username: "ÄHRENSTÜCK", PasswordHash: "x"})
	mustFail(t, "username in another case of letters beyond ASCII", err, store.ErrUsernameTaken)
}
