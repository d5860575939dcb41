package gateways

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"net/http"
	"time"

	"filippo.io/edwards25519"
	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/wire"
)

// enrolment is [wire.EnrolRequest] for the document.
type enrolment struct {
	_         struct{} `additionalProperties:"true"`
	Code      string   `json:"code" minLength:"1" maxLength:"100" doc:"The one-time code; case, spaces and dashes do not matter." example:"ABCDE-FGHIJ-KLMNO-PQRST"`
	PublicKey []byte   `json:"public_key,omitempty" nullable:"true" doc:"The gateway's Ed25519 public key, 32 bytes in base64; needed to confirm, and once the code has enrolled." example:"11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="`
	Confirm   bool     `json:"confirm,omitempty" doc:"Whether to enrol; without it the answer says what the code is for, and nothing changes." example:"true"`
}

// Resolve refuses an invalid public key.
func (e *enrolment) Resolve(huma.Context, *huma.PathBuffer) []error {
	if len(e.PublicKey) == ed25519.PublicKeySize {
		return input.Check(validKey(e.PublicKey), "body.public_key",
			"the public key is no point of the curve, not in its one form, or of small order")
	}
	return input.Check(len(e.PublicKey) == 0 && !e.Confirm, "body.public_key", "expected 32 bytes in base64")
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
		Public: true, Summary: "Enrol a gateway by its code",
		Description: "For the gateway's own program; the code replaces a token. A client that tries many unknown codes " +
			"is refused for a while.",
	}, h.enrol, errCode, store.ErrGatewayEnrolled, errGuesses(auth.GuessEvery))
}

// errCode answers a code that is unknown or expired, or whose gateway is revoked.
var errCode = rest.NotFound("Enrolment code is unknown or has expired")

func errGuesses(wait time.Duration) *rest.Error {
	return rest.TooManyRequests("Too many unknown enrolment codes", wait)
}

func (h *Handlers) enrol(ctx context.Context, in *rest.Body[enrolment]) (enrolled, error) {
	if wait := h.guesses.Wait(auth.Client(ctx), h.Clock()); wait > 0 {
		return enrolled{}, errGuesses(wait)
	}
	found, err := h.exchange(ctx, in.Body)
	if errors.Is(err, store.ErrNoGateway) {
		h.guesses.Count(auth.Client(ctx), h.Clock())
		return enrolled{}, errCode
	}
	return enrolled(wire.EnrolReply{
		GatewayID: found.ID, Name: found.Name, Account: found.Account, Confirmed: in.Body.Confirm,
		ProjectID: h.ProjectID, Topic: h.Topic,
	}), err
}

// exchange returns the gateway of a code, and sets its public key if the request confirms.
// Only the first enrolment changes something and has an entry: a repeat gets the same answer, since
// a reply may be lost. A used code shows whose gateway it is only to the key that it enrolled,
// because it may be left in a shell's history.
func (h *Handlers) exchange(ctx context.Context, e enrolment) (accounts.Gateway, error) {
	key := ed25519.PublicKey(e.PublicKey)
	found, err := accounts.New(h.DB).GatewayByCode(ctx, e.Code)
	if err != nil {
		return accounts.Gateway{}, err
	}
	if found.PublicKey != nil {
		if !found.PublicKey.Equal(key) {
			return accounts.Gateway{}, store.ErrGatewayEnrolled
		}
		return found, nil
	}
	if !e.Confirm {
		return found, nil
	}
	before := audited(found)
	err = h.DB.InTx(ctx, func(tx *store.DB) error {
		after, err := accounts.New(tx).EnrolGateway(ctx, e.Code, key)
		if err != nil {
			return err
		}
		found = after
		return audit.Append(ctx, tx, found.CustomerID, audit.GatewayActor(found), audit.Entry{
			Subject: audit.Subject("gateway", found.ID), Before: before, After: audited(found),
		})
	})
	if errors.Is(err, store.ErrGatewayEnrolled) { // at the same moment: like a repeat
		return h.exchange(ctx, e)
	}
	return found, err
}

// validKey refuses a public key by which a signature could be made without the private
// one, and one in another form than its own, which crypto/ed25519 would accept. Keys that
// crypto/ed25519 generates pass.
func validKey(public ed25519.PublicKey) bool {
	point, err := new(edwards25519.Point).SetBytes(public)
	return err == nil && bytes.Equal(point.Bytes(), public) &&
		point.MultByCofactor(point).Equal(edwards25519.NewIdentityPoint()) == 0
}
