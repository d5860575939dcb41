package gateways

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/signature"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/wire"
)

// enrolment is [wire.EnrolRequest] for the document.
type enrolment struct {
	_         struct{} `additionalProperties:"true"`
	Code      string   `json:"code" minLength:"1" maxLength:"100" doc:"The one-time code; case, spaces and dashes do not matter." example:"ABCDE-FGHIJ-KLMNO-PQRST"`
	PublicKey []byte   `json:"public_key,omitempty" nullable:"true" doc:"The gateway's Ed25519 public key, 32 bytes in base64; needed to confirm, and once the code has enrolled." example:"11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="`
	Confirm   bool     `json:"confirm,omitempty" doc:"Whether to enrol; without it the answer says what the code is for, and nothing changes." example:"true"`
}

// Resolve refuses what is no public key.
func (e *enrolment) Resolve(huma.Context, *huma.PathBuffer) []error {
	message := "expected 32 bytes in base64"
	if len(e.PublicKey) == ed25519.PublicKeySize {
		err := signature.CheckKey(e.PublicKey)
		if err == nil {
			return nil
		}
		message = err.Error()
	}
	if len(e.PublicKey) == 0 && !e.Confirm {
		return nil
	}
	return []error{&huma.ErrorDetail{Location: "body.public_key", Message: message}}
}

// enrolled is [wire.EnrolReply] for the document.
type enrolled struct {
	GatewayID string `json:"gateway_id" doc:"Identifier of the gateway." example:"gw-4f7q2m5n3xk6d2hwz7ab"`
	Name      string `json:"name" doc:"Name that the customer gave it." example:"Basement"`
	Account   string `json:"account" doc:"E-mail address of the customer whose gateway it is, or would be." example:"ops@example.com"`
	Confirmed bool   `json:"confirmed" doc:"Whether it is enrolled." example:"true"`
	ProjectID string `json:"project_id" doc:"Google Cloud project in which it publishes." example:"coldaisle"`
	Topic     string `json:"topic" doc:"Topic to which it publishes." example:"data"`
}

func (h *Handlers) registerEnrolment(r *rest.API) {
	// Called by monitor-gateway enrol, first to show whose gateway it would be and
	// then to enrol it. A repeat with the same key gets the same answer.
	rest.Answer(r, rest.Operation{
		ID: "enrolGateway", Method: http.MethodPost, Path: "/api/v1/gateways/enrol", Tag: rest.TagGateways,
		Public: true, Middlewares: huma.Middlewares{h.Clients.Identify},
		Summary: "Enrol a gateway by its code",
		Description: "For the gateway's own program; the code stands in place of a token. A client that tries many unknown codes " +
			"is refused for a while.",
		Errors: []error{errCode(), store.ErrGatewayEnrolled, errGuesses(guessEvery)},
	}, h.enrol)
}

// errCode answers a code that is unknown, has expired, or whose gateway is revoked.
func errCode() *rest.Error { return rest.NotFound("Enrolment code is unknown or has expired") }

func errGuesses(wait time.Duration) *rest.Error {
	return rest.TooManyRequests("Too many unknown enrolment codes", wait)
}

func (h *Handlers) enrol(ctx context.Context, in *rest.Body[enrolment]) (enrolled, error) {
	right, err := h.guesses.begin(auth.Client(ctx), h.Clock())
	if err != nil {
		return enrolled{}, err
	}
	found, err := h.exchange(ctx, in.Body)
	if errors.Is(err, store.ErrNoGateway) {
		return enrolled{}, errCode()
	}
	right()
	return enrolled(wire.EnrolReply{
		GatewayID: found.ID, Name: found.Name, Account: found.Account, Confirmed: in.Body.Confirm,
		ProjectID: h.ProjectID, Topic: h.Topic,
	}), err
}

// exchange returns the gateway of a code, with the public key if the request
// confirms. Only the first enrolment changes something and has an entry. A code that
// has enrolled says whose gateway it is only with the key that it enrolled: it may
// lie about in a shell's history.
func (h *Handlers) exchange(ctx context.Context, e enrolment) (store.Gateway, error) {
	key := ed25519.PublicKey(e.PublicKey)
	found, err := h.Store.GatewayByCode(ctx, e.Code)
	if err != nil {
		return store.Gateway{}, err
	}
	if found.PublicKey != nil {
		if !found.PublicKey.Equal(key) {
			return store.Gateway{}, store.ErrGatewayEnrolled
		}
		return found, nil
	}
	if !e.Confirm {
		return found, nil
	}
	err = h.Store.InTx(ctx, func(tx *store.Store) error {
		before := audited(found)
		after, err := tx.EnrolGateway(ctx, e.Code, key)
		if err != nil {
			return err
		}
		found = after
		return audit.Append(ctx, tx, found.CustomerID, subject(found.ID), audit.Entry{
			Subject: subject(found.ID), Before: before, After: audited(found),
		})
	})
	return found, err
}

// Bounds of guessing: a client may try so many unknown codes at once, and one more
// every so often. A code has 100 random bits; the bound keeps guesses from the database.
const (
	guessBurst  = 10
	guessEvery  = 6 * time.Second
	mostGuesser = 10_000 // clients that are remembered, about 2 MB
)

// guesses counts the unknown codes of each client, in this instance.
type guesses struct {
	mutex   sync.Mutex
	clients *simplelru.LRU[netip.Prefix, *rate.Limiter]
}

// begin counts a guess, or returns an error when the client has made too many. Call
// right when the code was no guess.
func (g *guesses) begin(client netip.Prefix, now time.Time) (right func(), err error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.clients == nil {
		if g.clients, err = simplelru.NewLRU[netip.Prefix, *rate.Limiter](mostGuesser, nil); err != nil {
			panic(err) // only of a size below one
		}
	}
	limiter, ok := g.clients.Get(client)
	if !ok {
		limiter = rate.NewLimiter(rate.Every(guessEvery), guessBurst)
		g.clients.Add(client, limiter)
	}
	guess := limiter.ReserveN(now, 1)
	if wait := guess.DelayFrom(now); wait > 0 {
		guess.CancelAt(now)
		return nil, errGuesses(wait)
	}
	return func() { guess.CancelAt(now) }, nil
}
