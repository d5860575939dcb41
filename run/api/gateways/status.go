package gateways

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/wire"
)

// freshness is how far a status may be from our clock, by the gateway's corrected
// clock. One that is further off is only answered with the time: it may be a recording, and
// a gateway whose clock was wrong corrects it and reports again.
const freshness = 5 * time.Minute

// signedStatus is [wire.SignedStatus] for the document.
type signedStatus struct {
	_         struct{} `additionalProperties:"true"`
	GatewayID string   `json:"gateway_id" minLength:"1" maxLength:"100" doc:"Identifier of the gateway." example:"gw-4f7q2m5n3xk6d2hwz7ab"`
	Request   []byte   `json:"request" doc:"The status as JSON, in base64. Its members are gateway_id, nonce, boot_id, sequence (from 1 in each boot), sent_at (by the system clock), version, role, clock_offset_ms, outbox_readings and nodes, a list of node_id, last_heartbeat and last_reading." example:"e30="`
	Signature []byte   `json:"signature" doc:"Ed25519 signature, in base64, of the line coldaisle/status/1 followed by the gateway's id, and of the status's bytes after it." example:"AAAA"`
}

// statusReply is [wire.StatusReply] for the document.
type statusReply struct {
	Nonce          string    `json:"nonce" doc:"The nonce of the status." example:"4f7q2m5n"`
	Time           rest.Time `json:"time" doc:"Time of the answer, UTC: what the gateway corrects its clock by." example:"2026-03-01T12:00:00Z"`
	Revoked        bool      `json:"revoked" doc:"Whether the gateway's messages are refused." example:"false"`
	Clone          bool      `json:"clone" doc:"Whether two machines have used its key within the last 24 hours." example:"false"`
	Account        string    `json:"account" doc:"E-mail address of the customer whose gateway it is." example:"ops@example.com"`
	AccessToken    string    `json:"access_token,omitzero" doc:"Google access token to publish with; absent where none is needed or to be had." example:"ya29.c.b0Aa"`
	TokenExpiresAt rest.Time `json:"token_expires_at,omitzero" doc:"Until when the access token is valid, UTC; absent without one." example:"2026-03-01T13:00:00Z"`
	ProjectID      string    `json:"project_id" doc:"Google Cloud project in which it publishes." example:"coldaisle"`
	Topic          string    `json:"topic" doc:"Topic to which it publishes." example:"data"`
	PairKey        []byte    `json:"pair_key,omitzero" doc:"Secret by which the customer's gateways know one another in a network, in base64; another one once a gateway of the customer is revoked. Absent where there is no access token for it either: for a revoked gateway, and for a status that is too far off." example:"AAAA"`
}

func (h *Handlers) registerStatus(r *rest.API) {
	// Called by every enrolled gateway once a minute. A repeat is refused: each
	// request has a sequence of its own.
	rest.Answer(r, rest.Operation{
		ID: "reportGatewayStatus", Method: http.MethodPost, Path: "/api/v1/gateways/status", Tag: rest.TagGateways,
		Public: true, Summary: "Report a gateway's status",
		Description: "For the gateway's own program; the signature replaces a token. A status whose time, `sent_at` plus " +
			"`clock_offset_ms`, is more than 5 minutes off is answered with the time, without an access token, and is not stored.",
	}, h.status, errSignature, errRequest(wire.ErrGateway), store.ErrStatusReplayed)
}

// errSignature answers a status that no enrolled gateway signed. It does not say
// whether there is such a gateway.
var errSignature = rest.NewError(http.StatusUnauthorized, "Could not verify the gateway's signature")

// errRequest answers a malformed status that its gateway signed.
func errRequest(err error) *rest.Error { return rest.BadRequest("request: " + err.Error()) }

func (h *Handlers) status(ctx context.Context, in *rest.Body[signedStatus]) (statusReply, error) {
	signed := wire.SignedStatus{GatewayID: in.Body.GatewayID, Request: in.Body.Request, Signature: in.Body.Signature}
	known, request, err := h.verify(ctx, signed)
	if err != nil {
		return statusReply{}, err
	}
	now := h.Clock().UTC()
	sentAt := request.SentAt.Add(time.Duration(request.ClockOffsetMS) * time.Millisecond)
	fresh := now.Sub(sentAt).Abs() <= freshness
	if offset := sentAt.Sub(request.SentAt); fresh && offset.Abs() > freshness {
		// Terraform derives a metric and an alert from it.
		h.Log.WarnContext(ctx, "a gateway's system clock is off", "gateway", known.ID, "clock_offset_ms", request.ClockOffsetMS)
	}
	if fresh {
		if known, err = accounts.New(h.DB).RecordGatewayStatus(ctx, request, sentAt); err != nil {
			return statusReply{}, err
		}
	}
	reply := statusReply{
		Nonce: request.Nonce, Revoked: known.Revoked(), Clone: known.Clone(now), Account: known.Account,
		ProjectID: h.ProjectID, Topic: h.Topic,
	}
	if fresh && !known.Revoked() {
		reply.PairKey = known.PairKey
	}
	if fresh && !known.Revoked() && h.Tokens != nil {
		token, err := h.Tokens.Token(ctx)
		if err != nil {
			// The gateway still has its last token, and needs the rest of the answer.
			h.Log.ErrorContext(ctx, "no access token for a gateway", "gateway", known.ID, "error", err.Error())
		} else {
			reply.AccessToken, reply.TokenExpiresAt = token.Value, rest.UTC(token.ExpiresAt)
		}
	}
	reply.Time = rest.UTC(h.Clock()) // last, because the rest takes time
	return reply, nil
}

// verify returns the gateway that signed a status, even a revoked one.
func (h *Handlers) verify(ctx context.Context, signed wire.SignedStatus) (accounts.Gateway, wire.StatusRequest, error) {
	if wire.ValidateGatewayID(signed.GatewayID) != nil {
		return accounts.Gateway{}, wire.StatusRequest{}, errSignature
	}
	known, err := accounts.New(h.DB).Gateway(ctx, signed.GatewayID)
	if errors.Is(err, store.ErrNoGateway) {
		return accounts.Gateway{}, wire.StatusRequest{}, errSignature
	}
	if err != nil {
		return accounts.Gateway{}, wire.StatusRequest{}, err
	}
	request, err := signed.Verify(known.PublicKey)
	if err != nil {
		h.Log.InfoContext(ctx, "gateway status refused", "gateway", known.ID, "error", err.Error())
		if errors.Is(err, wire.ErrSignature) {
			return accounts.Gateway{}, wire.StatusRequest{}, errSignature
		}
		return accounts.Gateway{}, wire.StatusRequest{}, errRequest(err)
	}
	return known, request, nil
}

// LogDarkSites logs each dark site, by gateway and customer. Terraform derives a metric and an
// alert from it, so that the operator hears of one dark site among many.
func LogDarkSites(ctx context.Context, db *store.DB, now time.Time, log *slog.Logger) {
	dark, err := incidents.New(db).DarkSites(ctx, now)
	if err != nil && ctx.Err() == nil {
		log.WarnContext(ctx, "looking for dark sites failed, retrying", "error", err.Error())
	}
	for _, site := range dark {
		gateway := cmp.Or(site.GatewayID, "not enrolled")
		log.WarnContext(ctx, "a site is dark", "gateway", gateway, "customer_id", site.CustomerID, "dark_s", int64(now.Sub(site.Since).Seconds()))
	}
}
