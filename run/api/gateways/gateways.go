// Package gateways has the operations on the programs on site. Customers enrol, list and revoke
// gateways and list the nodes that they have discovered; the gateways themselves enrol and report
// their status, which needs no customer's token. Watches, which call people, report every minute that
// they run, and whether they can send messages, so that the page can warn if nobody would be woken.
package gateways

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/wire"
)

type gateway struct {
	ID             string     `json:"id" doc:"Identifier of the gateway." example:"gw-4f7q2m5n3xk6d2hwz7ab"`
	Name           string     `json:"name" doc:"Name of the gateway." example:"Basement"`
	CreatedAt      rest.Time  `json:"created_at" doc:"Time of creation, UTC." example:"2026-03-01T12:00:00Z"`
	EnrolledAt     *rest.Time `json:"enrolled_at" nullable:"true" doc:"Time of enrolment, UTC; null while its code waits." example:"2026-03-01T12:05:00Z"`
	LastSeen       *rest.Time `json:"last_seen" nullable:"true" doc:"Time of its last status, UTC; null before the first." example:"2026-03-02T12:00:00Z"`
	Version        string     `json:"version" doc:"Version of its program; empty before its first status." example:"1.4.0"`
	Role           string     `json:"role" doc:"Role in a pair of gateways; empty before its first status." example:"active"`
	ClockOffsetMS  int64      `json:"clock_offset_ms" doc:"What it adds to its system clock, in milliseconds." example:"-120"`
	OutboxReadings int64      `json:"outbox_readings" doc:"Readings that it holds because Pub/Sub has not taken them yet." example:"0"`
	Nodes          int64      `json:"nodes" doc:"Nodes that it has heard." example:"12"`
	Revoked        bool       `json:"revoked" doc:"Whether its messages are refused." example:"false"`
	Clone          bool       `json:"clone" doc:"Whether two machines have used its key within the last 24 hours." example:"false"`
}

func (h *Handlers) gatewayOf(g accounts.Gateway) gateway {
	return gateway{
		ID: g.ID, Name: g.Name, CreatedAt: rest.UTC(g.CreatedAt), EnrolledAt: rest.OptionalUTC(g.EnrolledAt), LastSeen: rest.OptionalUTC(g.LastSeen),
		Version: g.Version, Role: g.Role, ClockOffsetMS: g.ClockOffset.Milliseconds(), OutboxReadings: g.OutboxReadings,
		Nodes: g.Nodes, Revoked: g.Revoked(), Clone: g.Clone(h.Clock()),
	}
}

type newGateway struct {
	_    struct{}         `additionalProperties:"true"`
	Name input.SingleLine `json:"name" minLength:"1" maxLength:"80" doc:"Name of the gateway, such as its place." example:"Basement"`
}

type createdGateway struct {
	ID            string    `json:"id" doc:"Identifier of the gateway." example:"gw-4f7q2m5n3xk6d2hwz7ab"`
	Name          string    `json:"name" doc:"Name of the gateway." example:"Basement"`
	EnrolmentCode string    `json:"enrolment_code" doc:"One-time code for monitor-gateway enrol; it is shown here and never again." example:"ABCDE-FGHIJ-KLMNO-PQRST"`
	ExpiresAt     rest.Time `json:"expires_at" doc:"Until when the code can be used, UTC." example:"2026-03-02T12:00:00Z"`
}

type gatewayPath struct {
	GatewayID string `path:"gateway_id" doc:"Identifier of one of the caller's gateways." example:"gw-4f7q2m5n3xk6d2hwz7ab"`
}

type discoveredNode struct {
	NodeID        string     `json:"node_id" doc:"Identifier of the node hardware." example:"esp32-7f3a"`
	SuggestedName string     `json:"suggested_name" doc:"What it may be called, of rack, host and sensor; empty where nobody knows." example:"C7 web1 Inlet Temp"`
	GatewayID     string     `json:"gateway_id" doc:"The gateway that heard it last." example:"gw-4f7q2m5n3xk6d2hwz7ab"`
	GatewayName   string     `json:"gateway_name" doc:"Name of that gateway." example:"Basement"`
	LastHeartbeat *rest.Time `json:"last_heartbeat" nullable:"true" doc:"Time of its last heartbeat, UTC; null when none came." example:"2026-03-01T12:00:00Z"`
	LastReading   *rest.Time `json:"last_reading" nullable:"true" doc:"Time of its last reading, UTC; null when none came." example:"2026-03-01T12:00:00Z"`
	Temperature   *float64   `json:"temperature" doc:"Temperature of its last reading that has arrived, in degrees Celsius; null when none has." example:"24.3"`
	Humidity      *float64   `json:"humidity" doc:"Relative humidity of that reading, in percent; null when none has arrived." example:"41.2"`
}

type discoveredInput struct {
	Unclaimed string `query:"unclaimed" enum:"true" default:"true" doc:"Only nodes that are no sensors of the caller's; others are never listed." example:"true"`
}

// Handlers answer the operations.
type Handlers struct {
	DB *store.DB
	// Tokens gives the access tokens with which gateways publish; nil if they need none,
	// as with an emulator.
	Tokens    *PublishingTokens
	ProjectID string // of Topic
	Topic     string // to which gateways publish
	Clock     func() time.Time
	Log       *slog.Logger

	guesses auth.Guesses
}

// Register adds the operations.
func (h *Handlers) Register(r *rest.API) {
	// Called by the gateways page. Without an Idempotency-Key a repeat makes a second gateway.
	// The first can be revoked: its code is lost with the answer.
	rest.Answer(r, rest.Operation{
		ID: "createGateway", Role: rest.Admin, Creates: true, Method: http.MethodPost, Path: "/api/v1/gateways", Tag: rest.TagGateways,
		Status: http.StatusCreated, Summary: "Create a gateway and its enrolment code",
		Description: "The code is valid for 24 hours and shown once. On site, `monitor-gateway enrol CODE --api URL` exchanges it.",
	}, h.createGateway, store.ErrNoCustomer, store.ErrTooManyGateways)
	rest.Answer(r, rest.Operation{
		ID: "listGateways", Role: rest.Viewer, Method: http.MethodGet, Path: "/api/v1/gateways", Tag: rest.TagGateways,
		Summary:     "List the caller's gateways, oldest first",
		Description: "A revoked gateway is listed for a year; one whose code expired unused, for a week.",
	}, h.listGateways)
	rest.Register(r, rest.Operation{
		ID: "revokeGateway", Role: rest.Admin, Method: http.MethodDelete, Path: "/api/v1/gateways/{gateway_id}", Tag: rest.TagGateways,
		Summary:     "Revoke a gateway",
		Description: "Its messages are refused within 15 seconds. Earlier readings stay the caller's.",
	}, h.revokeGateway, store.ErrNoGateway)
	// Called by "Add sensor".
	rest.Answer(r, rest.Operation{
		ID: "listDiscoveredNodes", Role: rest.Viewer, Method: http.MethodGet, Path: "/api/v1/gateways/nodes", Tag: rest.TagGateways,
		Summary: "List the nodes that the caller's gateways report and that are no sensors, those heard last first",
	}, h.discoveredNodes)
	h.registerEnrolment(r)
	h.registerStatus(r)
	h.registerWatches(r)
}

// audited is a gateway in the audit log, without its code and key.
func audited(g accounts.Gateway) map[string]any {
	return map[string]any{"name": g.Name, "enrolled": g.EnrolledAt != nil, "revoked": g.Revoked()}
}

func (h *Handlers) createGateway(ctx context.Context, in *rest.Body[newGateway]) (createdGateway, error) {
	return audit.Changed(ctx, h.DB, func(tx *store.DB) (createdGateway, audit.Entry, error) {
		created, code, err := accounts.New(tx).CreateGateway(ctx, auth.Caller(ctx), auth.Person(ctx).ID, string(in.Body.Name))
		out := createdGateway{
			ID: created.ID, Name: created.Name, EnrolmentCode: code, ExpiresAt: rest.UTC(created.CreatedAt.Add(accounts.EnrolmentTime)),
		}
		return out, audit.Entry{Subject: audit.Subject("gateway", created.ID), After: audited(created)}, err
	})
}

func (h *Handlers) listGateways(ctx context.Context, _ *struct{}) ([]gateway, error) {
	found, err := accounts.New(h.DB).Gateways(ctx, auth.Caller(ctx))
	return rest.List(found, h.gatewayOf), err
}

func (h *Handlers) revokeGateway(ctx context.Context, in *gatewayPath) (*struct{}, error) {
	if wire.ValidateGatewayID(in.GatewayID) != nil {
		return nil, store.ErrNoGateway
	}
	return nil, audit.Change(ctx, h.DB, func(tx *store.DB) (audit.Entry, error) {
		if err := accounts.New(tx).RevokeGateway(ctx, auth.Caller(ctx), in.GatewayID); err != nil {
			return audit.Entry{}, err
		}
		revoked, err := accounts.New(tx).Gateway(ctx, in.GatewayID)
		after := audited(revoked)
		revoked.RevokedAt = nil
		return audit.Entry{Subject: audit.Subject("gateway", revoked.ID), Before: audited(revoked), After: after}, err
	})
}

func (h *Handlers) discoveredNodes(ctx context.Context, _ *discoveredInput) ([]discoveredNode, error) {
	found, err := accounts.New(h.DB).DiscoveredNodes(ctx, auth.Caller(ctx))
	return rest.List(found, func(n accounts.DiscoveredNode) discoveredNode {
		return discoveredNode{
			NodeID: n.NodeID, SuggestedName: n.SuggestedName, GatewayID: n.GatewayID, GatewayName: n.GatewayName,
			LastHeartbeat: rest.OptionalUTC(n.LastHeartbeat), LastReading: rest.OptionalUTC(n.LastReading), Temperature: n.Temperature, Humidity: n.Humidity,
		}
	}), err
}
