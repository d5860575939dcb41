// Package customers has the operations on customers: registration, login, the profile, and
// the API keys by which programs call in place of a login.
package customers

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

type customer struct {
	ID       int64  `json:"id" doc:"Primary key." example:"7"`
	Email    string `json:"email" doc:"E-mail address." example:"ops@example.com"`
	Username string `json:"username" doc:"Unique name." example:"coldaisle"`
}

func customerOf(c accounts.Customer) customer {
	return customer{ID: c.ID, Email: c.Email, Username: c.Username}
}

// changedCustomer is what the audit log has of a changed profile. Of a password it
// has that it was set.
type changedCustomer struct {
	customer

	PasswordSet bool `json:"password_set"`
}

type registration struct {
	_        struct{}       `additionalProperties:"true"`
	Email    input.Email    `json:"email"`
	Username input.Username `json:"username"`
	Password input.Password `json:"password"`
}

type credentials struct {
	_        struct{} `additionalProperties:"true"`
	Email    string   `json:"email" doc:"E-mail address; compared without regard to case." example:"ops@example.com"`
	Password string   `json:"password" format:"password" writeOnly:"true" doc:"Password." example:"Rack42door"`
}

type token struct {
	AccessToken string `json:"access_token" doc:"JWT to send as Authorization: Bearer; valid for 30 minutes." example:"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiI3In0.c2lnbmF0dXJl"`
	TokenType   string `json:"token_type" enum:"bearer" doc:"Always bearer." example:"bearer"`
	CustomerID  int64  `json:"customer_id" doc:"The customer's own id, which other paths ask for." example:"7"`
}

type profileChange struct {
	_        struct{}        `additionalProperties:"true"`
	Email    *input.Email    `json:"email,omitempty"`
	Username *input.Username `json:"username,omitempty"`
	Password *input.Password `json:"password,omitempty"`
}

type updateCustomerInput struct {
	CustomerID int64 `path:"customer_id" doc:"The caller's own id." example:"7"`
	Body       profileChange
}

// Handlers answer the operations.
type Handlers struct {
	DB        *store.DB
	Passwords *auth.Passwords
	Tokens    *auth.Tokens
	Clients   auth.Clients
	Clock     func() time.Time
}

// Register adds the operations.
func (h *Handlers) Register(r *rest.API) {
	// Called by the registration form. A repeat after a lost answer is told that
	// the e-mail is taken; the account exists and login works.
	rest.Answer(r, rest.Operation{
		ID: "registerCustomer", Method: http.MethodPost, Path: "/api/v1/customers/register", Tag: rest.TagCustomers,
		Public: true, Middlewares: huma.Middlewares{h.Clients.Identify}, Status: http.StatusCreated,
		Summary: "Register a customer",
		Errors:  []error{rest.BadRequest(input.InvalidEmail), store.ErrEmailTaken, store.ErrUsernameTaken, auth.Busy()},
	}, h.registerCustomer)

	// Called by the login form and by scripts; each call gives a new token.
	rest.Answer(r, rest.Operation{
		ID: "loginCustomer", Method: http.MethodPost, Path: "/api/v1/customers/login", Tag: rest.TagCustomers,
		Public: true, Middlewares: huma.Middlewares{h.Clients.Identify},
		Summary: "Log in",
		Errors:  []error{errLogin(), auth.Busy()},
	}, h.login)

	// Called by the profile page. It is a POST by the specification, though it only
	// reads.
	rest.Answer(r, rest.Operation{
		ID: "getCustomer", Method: http.MethodPost, Path: "/api/v1/customers/info/{customer_id}", Tag: rest.TagCustomers,
		Summary: "Read the caller's profile",
		Errors:  []error{store.ErrNoCustomer},
	}, h.customerInfo)

	// Called by the profile page. A repeat sets the same values again; one that
	// repeats a password change revokes the tokens issued in between.
	rest.Answer(r, rest.Operation{
		ID: "updateCustomer", Method: http.MethodPatch, Path: "/api/v1/customers/{customer_id}", Tag: rest.TagCustomers,
		Middlewares: huma.Middlewares{h.Clients.Identify},
		Summary:     "Change the caller's profile",
		Description: "All fields are optional. A new password makes every token issued before it invalid.",
		Errors: []error{
			rest.BadRequest(input.InvalidEmail), store.ErrEmailTaken, store.ErrUsernameTaken, store.ErrNoCustomer, auth.Busy(),
		},
	}, h.updateCustomer)
	h.registerKeys(r)
}

func (h *Handlers) registerCustomer(ctx context.Context, in *rest.Body[registration]) (customer, error) {
	hash, err := h.Passwords.Hash(ctx, string(in.Body.Password))
	if err != nil {
		return customer{}, err
	}
	var created customer
	err = h.DB.InTx(ctx, func(tx *store.DB) error {
		stored, err := accounts.New(tx).CreateCustomer(ctx, accounts.NewCustomer{
			Email: string(in.Body.Email), Username: string(in.Body.Username), PasswordHash: hash,
		})
		if err != nil {
			return err
		}
		created = customerOf(stored)
		actor := audit.CustomerActor(stored.ID)
		return audit.Append(ctx, tx, stored.ID, actor, audit.Entry{Subject: actor, After: created})
	})
	return created, err
}

// errLogin answers a login with an unknown e-mail or a wrong password.
func errLogin() *rest.Error {
	return rest.NewError(http.StatusUnauthorized, "Incorrect email or password")
}

// login gives an unknown e-mail address and a wrong password the same answer in the
// same time, because both compare one hash (contract 2.6).
func (h *Handlers) login(ctx context.Context, in *rest.Body[credentials]) (token, error) {
	found, matches, err := h.check(ctx, in.Body)
	if err != nil {
		return token{}, err
	}
	if !matches {
		return token{}, errLogin()
	}
	signed, err := h.Tokens.Issue(found.ID, found.Generation)
	return token{AccessToken: signed, TokenType: "bearer", CustomerID: found.ID}, err
}

// check waits for a password slot, finds the customer with the e-mail address and
// compares the password.
func (h *Handlers) check(ctx context.Context, c credentials) (found accounts.Customer, matches bool, err error) {
	done, err := h.Passwords.Acquire(ctx)
	if err != nil {
		return accounts.Customer{}, false, err
	}
	defer done()
	if isStorableText(c.Email) {
		found, err = accounts.New(h.DB).CustomerByEmail(ctx, c.Email)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return accounts.Customer{}, false, err
		}
	}
	matches, err = h.Passwords.Matches(found.PasswordHash, c.Password)
	return found, matches, err
}

// isStorableText reports whether PostgreSQL can store a text. A search for one
// that it cannot store finds nothing, and needs no query.
func isStorableText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

func (h *Handlers) customerInfo(ctx context.Context, in *input.CustomerPath) (customer, error) {
	if err := auth.RequireSelf(ctx, in.CustomerID); err != nil {
		return customer{}, err
	}
	found, err := accounts.New(h.DB).Customer(ctx, in.CustomerID)
	return customerOf(found), err
}

func (h *Handlers) updateCustomer(ctx context.Context, in *updateCustomerInput) (customer, error) {
	if err := auth.RequireSelf(ctx, in.CustomerID); err != nil {
		return customer{}, err
	}
	change := accounts.CustomerChange{Email: (*string)(in.Body.Email), Username: (*string)(in.Body.Username)}
	if in.Body.Password != nil {
		hash, err := h.Passwords.Hash(ctx, string(*in.Body.Password))
		if err != nil {
			return customer{}, err
		}
		change.PasswordHash = &hash
	}
	return audit.Changed(ctx, h.DB, func(tx *store.DB) (customer, audit.Entry, error) {
		before, err := accounts.New(tx).Customer(ctx, in.CustomerID)
		if err != nil {
			return customer{}, audit.Entry{}, err
		}
		after, err := accounts.New(tx).UpdateCustomer(ctx, in.CustomerID, change)
		updated := customerOf(after)
		return updated, audit.Entry{
			Subject: audit.CustomerActor(in.CustomerID), Before: changedCustomer{customerOf(before), false},
			After: changedCustomer{updated, change.PasswordHash != nil},
		}, err
	})
}
