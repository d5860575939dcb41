package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/shared/store"
)

type customer struct {
	ID       int64  `json:"id" doc:"Primary key." example:"7"`
	Email    string `json:"email" doc:"E-mail address." example:"ops@example.com"`
	Username string `json:"username" doc:"Unique name." example:"coldaisle"`
}

type customerOutput struct {
	Body customer
}

func customerOf(c store.Customer) *customerOutput {
	return &customerOutput{Body: customer{ID: c.ID, Email: c.Email, Username: c.Username}}
}

type registration struct {
	_        struct{} `additionalProperties:"true"`
	Email    email    `json:"email"`
	Username username `json:"username"`
	Password password `json:"password"`
}

type registerInput struct {
	Body registration
}

type credentials struct {
	_        struct{} `additionalProperties:"true"`
	Email    string   `json:"email" doc:"E-mail address; compared without regard to case." example:"ops@example.com"`
	Password string   `json:"password" format:"password" writeOnly:"true" doc:"Password." example:"Rack42door"`
}

type loginInput struct {
	Body credentials
}

type token struct {
	AccessToken string `json:"access_token" doc:"JWT to send as Authorization: Bearer; valid for 30 minutes." example:"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiI3In0.c2lnbmF0dXJl"`
	TokenType   string `json:"token_type" enum:"bearer" doc:"Always bearer." example:"bearer"`
	CustomerID  int64  `json:"customer_id" doc:"The customer's own id, which other paths ask for." example:"7"`
}

type loginOutput struct {
	Body token
}

type profileChange struct {
	_        struct{}  `additionalProperties:"true"`
	Email    *email    `json:"email,omitempty"`
	Username *username `json:"username,omitempty"`
	Password *password `json:"password,omitempty"`
}

type updateCustomerInput struct {
	CustomerID int64 `path:"customer_id" doc:"The caller's own id." example:"7"`
	Body       profileChange
}

// customerHandlers answer registration, login and the operations on the profile.
type customerHandlers struct {
	store     *store.Store
	passwords *passwords
	tokens    *tokens
	sessions  *sessions
	clients   clients
	clock     func() time.Time
}

func (h *customerHandlers) register(r *rest) {
	// Called by the registration form. A repeat after a lost answer is told that
	// the e-mail is taken; the account exists and login works.
	register(r, operation{
		id: "registerCustomer", method: http.MethodPost, path: "/api/v1/customers/register", tag: tagCustomers,
		public: true, middlewares: huma.Middlewares{h.clients.identify}, status: http.StatusCreated,
		summary: "Register a customer",
		errors:  []error{badRequest(invalidEmail), store.ErrEmailTaken, store.ErrUsernameTaken, busy()},
	}, h.registerCustomer)

	// Called by the login form and by scripts; each call gives a new token.
	register(r, operation{
		id: "loginCustomer", method: http.MethodPost, path: "/api/v1/customers/login", tag: tagCustomers,
		public: true, middlewares: huma.Middlewares{h.clients.identify},
		summary: "Log in",
		errors:  []error{errLogin(), busy()},
	}, h.login)

	// Called by the profile page. It only reads, though the specification has it
	// as POST.
	register(r, operation{
		id: "getCustomer", method: http.MethodPost, path: "/api/v1/customers/info/{customer_id}", tag: tagCustomers,
		summary: "Read the caller's profile",
		errors:  []error{store.ErrNoCustomer},
	}, h.customerInfo)

	// Called by the profile page. A repeat sets the same values again; one that
	// repeats a password change revokes the tokens issued in between.
	register(r, operation{
		id: "updateCustomer", method: http.MethodPatch, path: "/api/v1/customers/{customer_id}", tag: tagCustomers,
		middlewares: huma.Middlewares{h.clients.identify},
		summary:     "Change the caller's profile",
		description: "All fields are optional. A new password makes every token issued before it invalid.",
		errors: []error{
			badRequest(invalidEmail), store.ErrEmailTaken, store.ErrUsernameTaken, store.ErrNoCustomer, busy(),
		},
	}, h.updateCustomer)
}

func (h *customerHandlers) registerCustomer(ctx context.Context, in *registerInput) (*customerOutput, error) {
	hash, err := h.passwords.hash(ctx, string(in.Body.Password))
	if err != nil {
		return nil, err
	}
	created, err := h.store.CreateCustomer(ctx, store.NewCustomer{
		Email: string(in.Body.Email), Username: string(in.Body.Username), PasswordHash: hash,
	})
	if err != nil {
		return nil, err
	}
	return customerOf(created), nil
}

// errLogin answers a login with an unknown e-mail or a wrong password.
func errLogin() *Error { return newError(http.StatusUnauthorized, "Incorrect email or password") }

// login answers an unknown e-mail and a wrong password alike and in the same
// time: both compare one hash.
func (h *customerHandlers) login(ctx context.Context, in *loginInput) (*loginOutput, error) {
	found, matches, err := h.check(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	if !matches {
		return nil, errLogin()
	}
	signed, err := h.tokens.issue(found.ID, found.TokensValidAfter)
	if err != nil {
		return nil, err
	}
	return &loginOutput{Body: token{AccessToken: signed, TokenType: "bearer", CustomerID: found.ID}}, nil
}

// check waits for a password slot, finds the customer with the e-mail address and
// compares the password.
func (h *customerHandlers) check(ctx context.Context, c credentials) (found store.Customer, matches bool, err error) {
	done, err := h.passwords.acquire(ctx)
	if err != nil {
		return store.Customer{}, false, err
	}
	defer done()
	if isStorableText(c.Email) {
		found, err = h.store.CustomerByEmail(ctx, c.Email)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return store.Customer{}, false, err
		}
	}
	matches, err = h.passwords.matches(found.PasswordHash, c.Password)
	return found, matches, err
}

// isStorableText reports whether PostgreSQL can store a text. A search for one
// that it cannot store finds nothing, and needs no query.
func isStorableText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

func (h *customerHandlers) customerInfo(ctx context.Context, in *customerPath) (*customerOutput, error) {
	if err := requireSelf(ctx, in.CustomerID); err != nil {
		return nil, err
	}
	found, err := h.store.Customer(ctx, in.CustomerID)
	if err != nil {
		return nil, err
	}
	return customerOf(found), nil
}

func (h *customerHandlers) updateCustomer(ctx context.Context, in *updateCustomerInput) (*customerOutput, error) {
	if err := requireSelf(ctx, in.CustomerID); err != nil {
		return nil, err
	}
	change := store.CustomerChange{
		Email: (*string)(in.Body.Email), Username: (*string)(in.Body.Username), ChangedAt: h.clock(),
	}
	if in.Body.Password != nil {
		hash, err := h.passwords.hash(ctx, string(*in.Body.Password))
		if err != nil {
			return nil, err
		}
		change.PasswordHash = &hash
		// Even when the answer of the database is lost, the change may stand.
		defer h.sessions.invalidate(in.CustomerID)
	}
	updated, err := h.store.UpdateCustomer(ctx, in.CustomerID, change)
	if err != nil {
		return nil, err
	}
	return customerOf(updated), nil
}
