// Package customers has the operations on customers: registration, login, the profile,
// persons and invitations, and the API keys with which programs call instead of a login.
package customers

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
)

type customer struct {
	ID       int64  `json:"id" doc:"Primary key." example:"7"`
	Email    string `json:"email" doc:"E-mail address." example:"ops@example.com"`
	Username string `json:"username" doc:"Unique name." example:"coldaisle"`
}

func customerOf(p accounts.Person) customer {
	return customer{ID: p.CustomerID, Email: p.Email, Username: p.Username}
}

// changedProfile is a changed profile in the audit log. Of a password it says only that it
// was set.
type changedProfile struct {
	customer

	Name        string `json:"name"`
	PasswordSet bool   `json:"password_set"`
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

type loginInput struct {
	Cookie string `header:"Cookie" hidden:"true"`
	Body   credentials
}

type loggedIn struct {
	SetCookie http.Cookie `header:"Set-Cookie" doc:"That this browser or program has logged in."`
	Body      token
}

type token struct {
	AccessToken string `json:"access_token" doc:"JWT to send as Authorization: Bearer; valid for 30 minutes." example:"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiI3In0.c2lnbmF0dXJl"`
	TokenType   string `json:"token_type" enum:"bearer" doc:"Always bearer." example:"bearer"`
	CustomerID  int64  `json:"customer_id" doc:"The customer's own id, which other paths ask for." example:"7"`
}

type profileChange struct {
	_        struct{}          `additionalProperties:"true"`
	Email    *input.Email      `json:"email,omitempty"`
	Username *input.Username   `json:"username,omitempty"`
	Password *input.Password   `json:"password,omitempty"`
	Name     *input.PersonName `json:"name,omitempty"`
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
	Clock     func() time.Time

	guesses auth.Guesses
}

// Register adds the operations.
func (h *Handlers) Register(r *rest.API) {
	// Called by the registration form. A repeat after a lost answer hears that the e-mail is
	// taken: the account exists and login works.
	rest.Answer(r, rest.Operation{
		ID: "registerCustomer", Method: http.MethodPost, Path: "/api/v1/customers/register", Tag: rest.TagCustomers,
		Public: true, Status: http.StatusCreated,
		Summary: "Register a customer",
	}, h.registerCustomer,
		rest.BadRequest(input.InvalidEmail), store.ErrEmailTaken, store.ErrUsernameTaken, auth.ErrBusy)

	// Called by the login form and by scripts; each call gives a new token.
	rest.Register(r, rest.Operation{
		ID: "loginCustomer", Method: http.MethodPost, Path: "/api/v1/customers/login", Tag: rest.TagCustomers,
		Public: true, Summary: "Log in",
		Description: "The cookie says that this browser or program has logged in. If it is sent with the next login, that does not wait " +
			"behind guesses.",
	}, h.login, errLogin, auth.ErrBusy)

	// Called by the profile page. It is a POST by the specification, though it only
	// reads.
	rest.Answer(r, rest.Operation{
		ID: "getCustomer", Role: rest.Viewer, Method: http.MethodPost, Path: "/api/v1/customers/info/{customer_id}", Tag: rest.TagCustomers,
		Summary: "Read the caller's profile",
	}, h.customerInfo, store.ErrNoCustomer)

	// Called by the profile page. A repeat sets the same values again; one that
	// repeats a password change revokes the tokens issued in between.
	rest.Answer(r, rest.Operation{
		ID: "updateCustomer", Role: rest.Viewer, Method: http.MethodPatch, Path: "/api/v1/customers/{customer_id}", Tag: rest.TagCustomers,
		Summary: "Change the caller's profile",
		Description: "All fields are optional. E-mail, password and name are the calling person's own; the user name is the account's, " +
			"and an owner's to change. A new password makes every token of the person issued before it invalid.",
	}, h.updateCustomer,
		rest.BadRequest(input.InvalidEmail), store.ErrEmailTaken, store.ErrUsernameTaken, store.ErrNoCustomer, auth.ErrBusy, errOwner)
	h.registerKeys(r)
	h.registerPersons(r)
}

func (h *Handlers) registerCustomer(ctx context.Context, in *rest.Body[registration]) (customer, error) {
	hash, err := h.Passwords.Hash(ctx, "", string(in.Body.Password))
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
		created = customer(stored)
		owner, err := accounts.New(tx).PersonByEmail(ctx, stored.Email)
		if err != nil {
			return err
		}
		return audit.Append(ctx, tx, stored.ID, audit.PersonActor(owner), audit.Entry{Subject: audit.Subject("customer", stored.ID), After: created})
	})
	return created, err
}

// errLogin answers a login with an unknown e-mail or a wrong password.
var errLogin = rest.NewError(http.StatusUnauthorized, "Incorrect email or password")

// login gives an unknown e-mail address and a wrong password the same answer in the
// same time, because both compare one hash (contract 2.6).
func (h *Handlers) login(ctx context.Context, in *loginInput) (*loggedIn, error) {
	c, known := in.Body, ""
	if h.Tokens.KnownDevice(in.Cookie, c.Email) {
		known = c.Email
	}
	done, err := h.Passwords.Acquire(ctx, known)
	if err != nil {
		return nil, err
	}
	defer done()
	var found accounts.Person
	if utf8.ValidString(c.Email) && !strings.ContainsRune(c.Email, 0) { // PostgreSQL stores no other text: nobody has it
		found, err = accounts.New(h.DB).PersonByEmail(ctx, c.Email)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
	}
	matches, err := h.Passwords.Matches(found.PasswordHash, c.Password)
	if err != nil {
		return nil, err
	}
	if !matches {
		return nil, errLogin
	}
	signed, err := h.Tokens.Issue(found)
	return &loggedIn{h.Tokens.DeviceCookie(found.Email), token{AccessToken: signed, TokenType: "bearer", CustomerID: found.CustomerID}}, err
}

func (h *Handlers) customerInfo(ctx context.Context, in *input.CustomerPath) (customer, error) {
	if err := auth.RequireSelf(ctx, in.CustomerID); err != nil {
		return customer{}, err
	}
	return customerOf(auth.Person(ctx)), nil
}

// errOwner answers a person who may not change the user name.
var errOwner = rest.Forbidden("username: " + rest.Owner.Refuse(""))

func (h *Handlers) updateCustomer(ctx context.Context, in *updateCustomerInput) (customer, error) {
	if err := auth.RequireSelf(ctx, in.CustomerID); err != nil {
		return customer{}, err
	}
	if in.Body.Username != nil && rest.Owner.Refuse(auth.Person(ctx).Role) != "" {
		return customer{}, errOwner
	}
	change := accounts.PersonChange{Email: (*string)(in.Body.Email), Name: (*string)(in.Body.Name)}
	if in.Body.Password != nil {
		hash, err := h.Passwords.Hash(ctx, auth.Person(ctx).Email, string(*in.Body.Password))
		if err != nil {
			return customer{}, err
		}
		change.PasswordHash = &hash
	}
	return audit.Changed(ctx, h.DB, func(tx *store.DB) (customer, audit.Entry, error) {
		s, caller := accounts.New(tx), auth.Person(ctx).ID
		before, err := s.Person(ctx, in.CustomerID, caller)
		if err == nil && in.Body.Username != nil {
			err = s.Rename(ctx, in.CustomerID, string(*in.Body.Username))
		}
		if err == nil {
			err = s.UpdatePerson(ctx, in.CustomerID, caller, change)
		}
		if err != nil {
			return customer{}, audit.Entry{}, err
		}
		after, err := s.Person(ctx, in.CustomerID, caller)
		if err == nil {
			err = incidents.New(tx).RenameHolder(ctx, in.CustomerID, before.Name, after.Name)
		}
		if err == nil { // another person may have the user name as a name
			err = incidents.New(tx).RenameHolder(ctx, in.CustomerID, before.Username, after.Username)
		}
		return customerOf(after), audit.Entry{
			Subject: audit.Subject("person", caller), Before: changedProfile{customerOf(before), before.Name, false},
			After: changedProfile{customerOf(after), after.Name, change.PasswordHash != nil},
		}, err
	})
}
