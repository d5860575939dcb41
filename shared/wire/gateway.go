package wire

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"coldaisle.dev/shared/reading"
)

// Bounds of a gateway's report.
const (
	MaxStatusNodes  = 4000 // with their times they fit the API's limit of 1 MiB
	maxGatewayID    = 40
	maxGatewayText  = 64
	gatewayIDPrefix = "gw-"
)

// Errors of malformed or wrongly signed enrolment and status requests.
var (
	ErrGateway = errors.New("gateway request is malformed")
	// ErrSignature marks a status that the key's owner did not sign.
	ErrSignature = errors.New("wrong signature")
)

// maxClockOffset bounds a clock's correction, in milliseconds: 200 years. A clock that starts
// in 1970 is off by less.
const maxClockOffset = 200 * 366 * 24 * 3600 * 1000

// ValidateGatewayID returns an error unless the id is gw- followed by lower-case letters
// and digits.
func ValidateGatewayID(id string) error {
	rest, ok := strings.CutPrefix(id, gatewayIDPrefix)
	if !ok || rest == "" || len(id) > maxGatewayID || strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return fmt.Errorf("%w: gateway id %q", ErrGateway, id)
	}
	return nil
}

// EnrolRequest exchanges a gateway's one-time code for an identity. With Confirm false it
// is a dry run: the reply says what the code is for, and nothing changes.
type EnrolRequest struct {
	Code      string            `json:"code"`
	PublicKey ed25519.PublicKey `json:"public_key"` // base64
	Confirm   bool              `json:"confirm"`
}

// EnrolReply says whose gateway it is, or would be, and where it publishes. The same code
// and key get the same reply again; another key is a conflict.
type EnrolReply struct {
	GatewayID string `json:"gateway_id"`
	Name      string `json:"name"`
	Account   string `json:"account"` // e-mail address of the customer
	Confirmed bool   `json:"confirmed"`
	ProjectID string `json:"project_id"`
	Topic     string `json:"topic"`
}

// StatusRequest is an enrolled gateway's report of each minute.
type StatusRequest struct {
	GatewayID      string       `json:"gateway_id"`
	Nonce          string       `json:"nonce"`
	BootID         string       `json:"boot_id"`
	Sequence       int64        `json:"sequence"` // counts the requests of a boot, from 1
	SentAt         time.Time    `json:"sent_at"`  // by the gateway's system clock
	Version        string       `json:"version"`
	Role           string       `json:"role"`            // of a pair
	ClockOffsetMS  int64        `json:"clock_offset_ms"` // that it adds to its system clock
	OutboxReadings int64        `json:"outbox_readings"`
	Nodes          []StatusNode `json:"nodes"`
}

// StatusNode is a node that a gateway has heard. Times are zero when there was none.
type StatusNode struct {
	NodeID        string    `json:"node_id"`
	LastHeartbeat time.Time `json:"last_heartbeat,omitzero"`
	LastReading   time.Time `json:"last_reading,omitzero"`
	// Name is a suggestion for people, such as rack, host and sensor.
	Name string `json:"name,omitzero"`
}

// MaxNodeName is the most characters of a node's suggested name.
const MaxNodeName = 80

// StatusReply is the answer to a [StatusRequest].
type StatusReply struct {
	Nonce          string    `json:"nonce"` // the request's
	Time           time.Time `json:"time"`
	Revoked        bool      `json:"revoked"`
	Clone          bool      `json:"clone"` // another boot uses the same key
	Account        string    `json:"account"`
	AccessToken    string    `json:"access_token,omitzero"`
	TokenExpiresAt time.Time `json:"token_expires_at,omitzero"`
	ProjectID      string    `json:"project_id"`
	Topic          string    `json:"topic"`
	// PairKey is the secret by which a customer's gateways recognise each other on a link.
	// Like the token, it answers only a current status of a gateway that is not revoked.
	PairKey []byte `json:"pair_key,omitzero"` // base64
}

// SignedStatus is the body of a status request: the JSON of a [StatusRequest] and a
// signature of exactly those bytes.
type SignedStatus struct {
	GatewayID string `json:"gateway_id"`
	Request   []byte `json:"request"`   // base64
	Signature []byte `json:"signature"` // base64
}

// SignStatus signs a status request. The signature covers the lines coldaisle/status/1 and
// the gateway's id, then the request's JSON.
func SignStatus(key ed25519.PrivateKey, r StatusRequest) (SignedStatus, error) {
	encoded, err := json.Marshal(r)
	if err != nil {
		return SignedStatus{}, fmt.Errorf("encode status of %s: %w", r.GatewayID, err)
	}
	return SignedStatus{
		GatewayID: r.GatewayID, Request: encoded, Signature: ed25519.Sign(key, signedStatus(r.GatewayID, encoded)),
	}, nil
}

// Verify decodes a status request that the key's owner signed. Errors: [ErrSignature];
// [ErrGateway], which names the field.
func (s SignedStatus) Verify(key ed25519.PublicKey) (StatusRequest, error) {
	if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, signedStatus(s.GatewayID, s.Request), s.Signature) {
		return StatusRequest{}, ErrSignature
	}
	var r StatusRequest
	if err := json.Unmarshal(s.Request, &r); err != nil {
		return StatusRequest{}, fmt.Errorf("%w: %w", ErrGateway, malformed(err))
	}
	if r.GatewayID != s.GatewayID {
		return StatusRequest{}, fmt.Errorf("%w: gateway_id: signed by %s for %q", ErrGateway, s.GatewayID, r.GatewayID)
	}
	return r, r.Validate()
}

// malformed describes a decoding error in JSON's terms instead of Go's.
func malformed(err error) error {
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return errors.New(strings.TrimPrefix(mismatch.Field+": unexpected "+mismatch.Value, ": "))
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return err
	}
	return errors.New("times must be in RFC 3339") // only times have a decoder of their own
}

func signedStatus(gatewayID string, request []byte) []byte {
	return append([]byte(statusPrefix+gatewayID+"\n"), request...)
}

// Validate returns an error for the first invalid field.
func (r StatusRequest) Validate() error {
	if err := ValidateGatewayID(r.GatewayID); err != nil {
		return err
	}
	for field, text := range map[string]string{"nonce": r.Nonce, "boot_id": r.BootID, "version": r.Version, "role": r.Role} {
		if len(text) > maxGatewayText || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) {
			return fmt.Errorf("%w: %s must be at most %d printable characters", ErrGateway, field, maxGatewayText)
		}
	}
	switch {
	case r.Nonce == "":
		return fmt.Errorf("%w: nonce is required", ErrGateway)
	case r.BootID == "":
		return fmt.Errorf("%w: boot_id is required", ErrGateway)
	case r.Sequence < 1:
		return fmt.Errorf("%w: sequence must be 1 or more", ErrGateway)
	case r.OutboxReadings < 0:
		return fmt.Errorf("%w: outbox_readings must be 0 or more", ErrGateway)
	case r.ClockOffsetMS < -maxClockOffset || r.ClockOffsetMS > maxClockOffset:
		return fmt.Errorf("%w: clock_offset_ms must be within 200 years", ErrGateway)
	case len(r.Nodes) > MaxStatusNodes:
		return fmt.Errorf("%w: nodes must list at most %d nodes", ErrGateway, MaxStatusNodes)
	}
	for i, node := range r.Nodes {
		if err := reading.ValidateNodeID(node.NodeID); err != nil {
			return fmt.Errorf("%w: nodes[%d]: %w", ErrGateway, i, err)
		}
		if utf8.RuneCountInString(node.Name) > MaxNodeName || strings.ContainsFunc(node.Name, unicode.IsControl) {
			return fmt.Errorf("%w: nodes[%d]: name must be at most %d characters in one line", ErrGateway, i, MaxNodeName)
		}
	}
	return nil
}
