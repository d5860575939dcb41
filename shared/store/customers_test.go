package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/store"
)

func TestCustomerIsFoundByEmailInAnyCase(t *testing.T) {
	t.Parallel()
	db := open(t)
	want := store.Customer{ID: db.anna, Email: "anna12@example.com", Username: "anna12", PasswordHash: "hash of anna12"}
	found, err := db.CustomerByEmail(t.Context(), "ANNA12@Example.COM")
	if err != nil {
		t.Fatal(err)
	}
	found.TokensValidAfter = found.TokensValidAfter.UTC()
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !found.TokensValidAfter.IsZero() {
		t.Error("tokens are void before any password change")
	}
	_, err = db.CustomerByEmail(t.Context(), "carla@example.com")
	mustFail(t, "unknown address", err, store.ErrNoCustomer)
	_, err = db.Customer(t.Context(), -1)
	mustFail(t, "unknown id", err, store.ErrNoCustomer)
	_, err = db.TokensValidAfter(t.Context(), -1)
	mustFail(t, "tokens of unknown id", err, store.ErrNoCustomer)
}

func TestCreateCustomerNamesTheDuplicate(t *testing.T) {
	t.Parallel()
	db := open(t)
	_, err := db.CreateCustomer(t.Context(), store.NewCustomer{Email: "Anna12@EXAMPLE.com", Username: "carla1", PasswordHash: "x"})
	mustFail(t, "address in another case", err, store.ErrEmailTaken)
	_, err = db.CreateCustomer(t.Context(), store.NewCustomer{Email: "c@example.com", Username: "anna12", PasswordHash: "x"})
	mustFail(t, "username", err, store.ErrUsernameTaken)
	_, err = db.CreateCustomer(t.Context(), store.NewCustomer{Email: "c@example.com", Username: "ANNA12", PasswordHash: "x"})
	mustFail(t, "username in another case", err, store.ErrUsernameTaken)
	if _, err := db.CreateCustomer(t.Context(), store.NewCustomer{Email: "s@example.com", Username: "Ährenstück", PasswordHash: "x"}); err != nil {
		t.Fatal(err)
	}
	_, err = db.CreateCustomer(t.Context(), store.NewCustomer{Email: "c@example.com", Username: "ÄHRENSTÜCK", PasswordHash: "x"})
	mustFail(t, "username in another case of letters beyond ASCII", err, store.ErrUsernameTaken)
}

func TestUpdateCustomer(t *testing.T) {
	t.Parallel()
	db := open(t)
	updated, err := db.UpdateCustomer(t.Context(), db.anna, store.CustomerChange{Email: new("new@example.com")})
	if err != nil || updated.Email != "new@example.com" || updated.Username != "anna12" || updated.PasswordHash != "hash of anna12" {
		t.Errorf("changed the address: %+v, %v", updated, err)
	}
	updated, err = db.UpdateCustomer(t.Context(), db.anna, store.CustomerChange{Email: new("NEW@example.com"), Username: new("anna12")})
	if err != nil || updated.Email != "NEW@example.com" {
		t.Errorf("one's own address in another case: %+v, %v", updated, err)
	}
	if !updated.TokensValidAfter.IsZero() {
		t.Error("a change of address voided the tokens")
	}
	_, err = db.UpdateCustomer(t.Context(), db.anna, store.CustomerChange{Email: new("BRUNO1@example.com")})
	mustFail(t, "another's address", err, store.ErrEmailTaken)
	_, err = db.UpdateCustomer(t.Context(), db.anna, store.CustomerChange{Username: new("bruno1")})
	mustFail(t, "another's username", err, store.ErrUsernameTaken)
	_, err = db.UpdateCustomer(t.Context(), db.anna, store.CustomerChange{Username: new("Bruno1")})
	mustFail(t, "another's username in another case", err, store.ErrUsernameTaken)
	updated, err = db.UpdateCustomer(t.Context(), db.anna, store.CustomerChange{Username: new("Anna12")})
	if err != nil || updated.Username != "Anna12" {
		t.Errorf("one's own username in another case: %+v, %v", updated, err)
	}
	_, err = db.UpdateCustomer(t.Context(), -1, store.CustomerChange{Username: new("carla1")})
	mustFail(t, "nobody", err, store.ErrNoCustomer)
}

func TestPasswordChangeVoidsEarlierTokens(t *testing.T) {
	t.Parallel()
	db := open(t)
	change := func(at time.Time) time.Time {
		t.Helper()
		if _, err := db.UpdateCustomer(t.Context(), db.anna, store.CustomerChange{PasswordHash: new("new"), ChangedAt: at}); err != nil {
			t.Fatal(err)
		}
		after, err := db.TokensValidAfter(t.Context(), db.anna)
		if err != nil {
			t.Fatal(err)
		}
		return after
	}
	if got := change(instant()); !got.Equal(instant()) {
		t.Errorf("tokens valid after %v, want the time of the change", got)
	}
	if got := change(instant().Add(-time.Hour)); !got.Equal(instant()) {
		t.Errorf("a clock that went back made tokens of before %v valid again", got)
	}
	if got := change(time.Time{}); !got.After(instant().Add(-time.Hour)) {
		t.Errorf("without a time: %v", got)
	}
	if after, err := db.TokensValidAfter(t.Context(), db.bruno); err != nil || !after.IsZero() {
		t.Errorf("another customer's tokens: %v, %v", after, err)
	}
}
