package accounts

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/wire"
)

// EnrolmentTime is how long an enrolment code is valid.
const EnrolmentTime = 24 * time.Hour

// Bounds of a customer's gateways.
const (
	// MaxGateways is how many a customer may have, enrolled or waiting for their code.
	MaxGateways = 200
	// MaxEnrolmentCodes is how many of them may wait.
	MaxEnrolmentCodes = 20
)

// forgotten is the condition that a gateway g is no longer shown and may be removed: a week
// after its unused code expired, or a year after it was revoked. The audit log keeps its
// history.
const forgotten = `(g.enrolled_at IS NULL AND COALESCE(g.revoked_at, g.code_expires_at) < now() - interval '7 days'
	OR g.revoked_at < now() - interval '1 year')`

// CloneShown is how long a gateway is shown as cloned after two boots used its key at
// once.
const CloneShown = 24 * time.Hour

// Gateway is a customer's gateway, enrolled or waiting for its code.
type Gateway struct {
	ID         string
	CustomerID int64
	Name       string
	Account    string // e-mail address of the customer
	CreatedAt  time.Time
	EnrolledAt *time.Time
	RevokedAt  *time.Time
	PublicKey  ed25519.PublicKey // nil before enrolment
	// From its last status.
	LastSeen       *time.Time
	Version        string
	Role           string
	ClockOffset    time.Duration // what it adds to its system clock
	OutboxReadings int64
	Nodes          int64      // how many it reports
	CloneSeenAt    *time.Time // when two boots of its key were last seen at once
	// PairKey is the secret of the customer's gateways, see [Store.RevokeGateway].
	PairKey []byte
}

// Revoked reports whether the gateway's messages are refused.
func (g Gateway) Revoked() bool { return g.RevokedAt != nil }

// Clone reports whether another boot uses the gateway's key, see [CloneShown].
func (g Gateway) Clone(now time.Time) bool {
	return g.CloneSeenAt != nil && now.Sub(*g.CloneSeenAt) < CloneShown
}

// gatewayColumns are of gateways g and customers c.
const gatewayColumns = `g.id, g.customer_id, g.name, c.email AS account, g.created_at, g.enrolled_at, g.revoked_at, g.public_key,
	g.last_seen, g.version, g.role, g.clock_offset_ms * interval '1 millisecond' AS clock_offset, g.outbox_readings,
	(SELECT count(*) FROM gateway_nodes n WHERE n.gateway_id = g.id) AS nodes, g.clone_seen_at, c.pair_key`

const selectGateways = `
	SELECT ` + gatewayColumns + `
	FROM gateways g
	JOIN customers c ON c.id = g.customer_id`

// CreateGateway creates a gateway that waits for its one-time code, and returns the code,
// which cannot be read again; by is the person, or 0. It also removes forgotten gateways of
// all customers. Call it after [Store.LockChanges]. Errors: [store.ErrNoCustomer],
// [store.ErrTooManyGateways].
func (s Store) CreateGateway(ctx context.Context, customerID, by int64, name string) (Gateway, string, error) {
	if err := s.db.Exec(ctx, `DELETE FROM gateways g WHERE `+forgotten, nil, "remove old gateways"); err != nil {
		return Gateway{}, "", err
	}
	full, err := store.Value[bool](ctx, s.db, store.ErrNoCustomer, `
		SELECT count(*) >= @most OR count(*) FILTER (WHERE enrolled_at IS NULL) >= @most_codes
		FROM gateways
		WHERE customer_id = @customer AND revoked_at IS NULL AND (enrolled_at IS NOT NULL OR code_expires_at > now())`,
		store.Args{"customer": customerID, "most": MaxGateways, "most_codes": MaxEnrolmentCodes},
		"gateways of customer %d", customerID)
	if err == nil && full {
		err = store.ErrTooManyGateways
	}
	if err != nil {
		return Gateway{}, "", err
	}
	text := rand.Text() // 130 bits in base32
	code := strings.Join([]string{text[:5], text[5:10], text[10:15], text[15:20]}, "-")
	created, err := store.One[Gateway](ctx, s.db, store.ErrNoCustomer, `
		WITH g AS (
		    INSERT INTO gateways (id, customer_id, name, code_hash, code_expires_at, created_by)
		    SELECT @id, id, @name, @code_hash, now() + @valid::interval, NULLIF(@by::bigint, 0)
		    FROM customers
		    WHERE id = @customer
		    RETURNING *
		)
		SELECT `+gatewayColumns+`
		FROM g
		JOIN customers c ON c.id = g.customer_id`,
		store.Args{
			"id": "gw-" + strings.ToLower(rand.Text()[:20]), "customer": customerID, "name": name,
			"code_hash": store.CodeHash(code), "valid": EnrolmentTime, "by": by,
		}, "create gateway of customer %d", customerID)
	return created, code, err
}

// GatewayByCode returns the gateway of a code that is valid or has enrolled it; otherwise
// [store.ErrNoGateway].
func (s Store) GatewayByCode(ctx context.Context, code string) (Gateway, error) {
	return store.One[Gateway](ctx, s.db, store.ErrNoGateway, selectGateways+`
		WHERE g.code_hash = @code_hash AND g.revoked_at IS NULL AND (g.code_expires_at > now() OR g.enrolled_at IS NOT NULL)`,
		store.Args{"code_hash": store.CodeHash(code)}, "gateway of a code")
}

// EnrolGateway sets the public key of the gateway of a code. Errors: [store.ErrNoGateway];
// [store.ErrGatewayEnrolled] once it has one.
func (s Store) EnrolGateway(ctx context.Context, code string, key ed25519.PublicKey) (Gateway, error) {
	enrolled, err := store.One[Gateway](ctx, s.db, store.ErrNoGateway, `
		UPDATE gateways g
		SET public_key = @key, enrolled_at = now()
		FROM customers c
		WHERE c.id = g.customer_id AND g.code_hash = @code_hash AND g.revoked_at IS NULL
		  AND g.public_key IS NULL AND g.code_expires_at > now()
		RETURNING `+gatewayColumns,
		store.Args{"code_hash": store.CodeHash(code), "key": []byte(key)}, "enrol gateway")
	if errors.Is(err, store.ErrNoGateway) {
		if _, absent := s.GatewayByCode(ctx, code); absent == nil {
			err = store.ErrGatewayEnrolled
		}
	}
	return enrolled, err
}

// Gateway returns a gateway by its id, revoked ones too, or [store.ErrNoGateway]. The
// caller must have verified that the gateway itself asks.
func (s Store) Gateway(ctx context.Context, id string) (Gateway, error) {
	return store.One[Gateway](ctx, s.db, store.ErrNoGateway, selectGateways+`
		WHERE g.id = @id`,
		store.Args{"id": id}, "gateway %s", id)
}

// Gateways lists a customer's gateways, oldest first, without those that are forgotten.
func (s Store) Gateways(ctx context.Context, customerID int64) ([]Gateway, error) {
	return store.All[Gateway](ctx, s.db, selectGateways+`
		WHERE g.customer_id = @customer AND NOT COALESCE(`+forgotten+`, false)
		ORDER BY g.created_at, g.id`,
		store.Args{"customer": customerID}, "gateways of customer %d", customerID)
}

// RevokeGateway revokes a customer's gateway: its messages are refused within 15 seconds;
// earlier readings stay the customer's. The customer's other gateways get a new pair key,
// which the revoked one cannot know. A gateway that is revoked already or is not the
// customer's is [store.ErrNoGateway].
func (s Store) RevokeGateway(ctx context.Context, customerID int64, id string) error {
	return s.db.Change(ctx, store.ErrNoGateway, `
		WITH revoked AS (
		    UPDATE gateways
		    SET revoked_at = now()
		    WHERE id = @id AND customer_id = @customer AND revoked_at IS NULL
		    RETURNING customer_id
		)
		UPDATE customers
		SET pair_key = DEFAULT
		FROM revoked
		WHERE customers.id = revoked.customer_id`,
		store.Args{"id": id, "customer": customerID}, "revoke gateway %s", id)
}

// GatewayKey verifies a gateway's messages.
type GatewayKey struct {
	Channel   reading.Channel // of its customer
	PublicKey ed25519.PublicKey
	Revoked   bool
}

// GatewayKeys returns the keys of enrolled gateways by their ids; others are absent.
func (s Store) GatewayKeys(ctx context.Context, ids []string) (map[string]GatewayKey, error) {
	type row struct {
		ID string
		GatewayKey
	}
	found, err := store.All[row](ctx, s.db, `
		SELECT id, customer_id AS channel, public_key, revoked_at IS NOT NULL AS revoked
		FROM gateways
		WHERE id = ANY(@ids) AND public_key IS NOT NULL`,
		store.Args{"ids": ids}, "keys of %d gateways", len(ids))
	keys := make(map[string]GatewayKey, len(found))
	for _, r := range found {
		keys[r.ID] = r.GatewayKey
	}
	return keys, err
}

// maxReportedNodes bounds the nodes kept per gateway, the last reported ones.
const maxReportedNodes = 5000

// maxBoots is how many earlier boots of a gateway are kept. A status can be replayed for
// ten minutes (contract 10.11), in which no gateway starts that often.
const maxBoots = 1000

// RecordGatewayStatus stores a gateway's verified status, which it signed at signedAt by its
// corrected clock, and returns the gateway. A revoked gateway is returned unchanged. A
// sequence number that was received before is [store.ErrStatusReplayed]. So is a status of an
// earlier boot, unless it was signed later than every status so far: then a second machine
// uses the key, and the gateway is marked as cloned. A replayed recording was signed earlier,
// so it marks nothing.
func (s Store) RecordGatewayStatus(ctx context.Context, status wire.StatusRequest, signedAt time.Time) (Gateway, error) {
	var replayed bool
	err := s.db.InTx(ctx, func(tx *store.DB) (err error) {
		replayed, err = recordStatus(ctx, tx, status, signedAt)
		return err
	})
	if err != nil {
		return Gateway{}, fmt.Errorf("status of gateway %s: %w", status.GatewayID, err)
	}
	gateway, err := s.Gateway(ctx, status.GatewayID)
	if err == nil && replayed {
		return gateway, fmt.Errorf("status of gateway %s: %w", status.GatewayID, store.ErrStatusReplayed)
	}
	return gateway, err
}

func recordStatus(ctx context.Context, tx *store.DB, status wire.StatusRequest, signedAt time.Time) (replayed bool, err error) {
	// A statement of its own, so that the next one sees what the last holder committed.
	locked, err := tx.Affected(ctx, `
		SELECT
		FROM gateways
		WHERE id = @id AND revoked_at IS NULL AND public_key IS NOT NULL
		FOR NO KEY UPDATE`, store.Args{"id": status.GatewayID}, "lock")
	if err != nil || locked == 0 {
		return false, err
	}
	signedAt = signedAt.Truncate(time.Microsecond) // as the column has it
	type comparison struct{ Repeated, Followed, Later bool }
	boot, err := store.One[comparison](ctx, tx, store.ErrNoGateway, `
		SELECT boot_id = @boot AND sequence >= @sequence AS repeated,
		       boot_id <> @boot AND EXISTS (SELECT FROM gateway_boots b WHERE b.gateway_id = g.id AND b.boot_id = @boot) AS followed,
		       COALESCE(@signed > signed_at, true) AS later
		FROM gateways g
		WHERE id = @id`,
		store.Args{"id": status.GatewayID, "boot": status.BootID, "sequence": status.Sequence, "signed": signedAt}, "compare")
	if err != nil {
		return false, err
	}
	clone := (boot.Repeated || boot.Followed) && boot.Later
	if clone {
		err := tx.Exec(ctx, `UPDATE gateways SET clone_seen_at = now(), signed_at = @signed WHERE id = @id`,
			store.Args{"id": status.GatewayID, "signed": signedAt}, "mark clone")
		if err != nil {
			return false, err
		}
	}
	if boot.Repeated || boot.Followed && !clone {
		return true, nil
	}
	err = tx.Exec(ctx, `
		WITH before AS (
		    INSERT INTO gateway_boots (gateway_id, boot_id)
		    SELECT id, boot_id
		    FROM gateways
		    WHERE id = @id AND boot_id NOT IN ('', @boot)
		    ON CONFLICT (gateway_id, boot_id) DO UPDATE
		    SET followed_at = now()
		    RETURNING gateway_id
		)
		DELETE FROM gateway_boots
		WHERE gateway_id IN (SELECT gateway_id FROM before) AND boot_id IN (
		    SELECT boot_id
		    FROM gateway_boots
		    WHERE gateway_id = @id
		    ORDER BY followed_at DESC, boot_id
		    OFFSET @most)`,
		store.Args{"id": status.GatewayID, "boot": status.BootID, "most": maxBoots}, "boot before")
	if err != nil {
		return false, err
	}
	err = tx.Exec(ctx, `
		UPDATE gateways
		SET last_seen = now(), boot_id = @boot, sequence = @sequence, signed_at = GREATEST(@signed, signed_at),
		    version = @version, role = @role, clock_offset_ms = @offset, outbox_readings = @outbox
		WHERE id = @id`,
		store.Args{
			"id": status.GatewayID, "boot": status.BootID, "sequence": status.Sequence, "signed": signedAt, "version": status.Version,
			"role": status.Role, "offset": status.ClockOffsetMS, "outbox": status.OutboxReadings,
		}, "update")
	if err != nil {
		return false, err
	}
	return false, reportNodes(ctx, tx, status)
}

// reported is a time from a gateway's report, or nil outside the years in which readings
// are accepted.
func reported(t time.Time) *time.Time {
	if !reading.InCalendar(t) {
		return nil
	}
	return &t
}

func reportNodes(ctx context.Context, tx *store.DB, status wire.StatusRequest) error {
	ids, names := make([]string, len(status.Nodes)), make([]string, len(status.Nodes))
	heartbeats, readings := make([]*time.Time, len(status.Nodes)), make([]*time.Time, len(status.Nodes))
	for i, node := range status.Nodes {
		ids[i], names[i], heartbeats[i], readings[i] = node.NodeID, node.Name, reported(node.LastHeartbeat), reported(node.LastReading)
	}
	err := tx.Exec(ctx, `
		INSERT INTO gateway_nodes (gateway_id, node_id, reported_at, last_heartbeat, last_reading, name)
		SELECT DISTINCT ON (node_id) @gateway, node_id, now(), heartbeat, reading, name
		FROM unnest(@ids::text[], @heartbeats::timestamptz[], @readings::timestamptz[], @names::text[]) AS n (node_id, heartbeat, reading, name)
		ORDER BY node_id
		ON CONFLICT (gateway_id, node_id) DO UPDATE
		SET reported_at = EXCLUDED.reported_at, last_heartbeat = EXCLUDED.last_heartbeat, last_reading = EXCLUDED.last_reading, name = COALESCE(NULLIF(EXCLUDED.name, ''), gateway_nodes.name)`,
		store.Args{"gateway": status.GatewayID, "ids": ids, "heartbeats": heartbeats, "readings": readings, "names": names},
		"nodes")
	if err != nil {
		return err
	}
	return tx.Exec(ctx, `
		DELETE FROM gateway_nodes
		WHERE gateway_id = @gateway AND node_id IN (
		    SELECT node_id
		    FROM gateway_nodes
		    WHERE gateway_id = @gateway
		    ORDER BY reported_at DESC, node_id
		    OFFSET @most)`,
		store.Args{"gateway": status.GatewayID, "most": maxReportedNodes}, "nodes not reported any more")
}

// DiscoveredNode is a node that a customer's gateways report and that is not yet one of
// the customer's sensors.
type DiscoveredNode struct {
	NodeID        string
	SuggestedName string // empty for none
	GatewayID     string
	GatewayName   string
	LastHeartbeat *time.Time
	LastReading   *time.Time
	// The newest reading in the customer's channel; nil when none has come.
	Temperature *float64 // °C
	Humidity    *float64 // % relative humidity
}

// maxDiscovered bounds the list of discovered nodes.
const maxDiscovered = 1000

// DiscoveredNodes lists a customer's discovered nodes, the last heard first, each under the
// gateway that heard it last.
func (s Store) DiscoveredNodes(ctx context.Context, customerID int64) ([]DiscoveredNode, error) {
	return store.All[DiscoveredNode](ctx, s.db, `
		WITH heard AS (
		    SELECT DISTINCT ON (n.node_id) n.node_id, n.name, n.gateway_id, g.name AS gateway_name, n.last_heartbeat, n.last_reading
		    FROM gateways g
		    JOIN gateway_nodes n ON n.gateway_id = g.id
		    WHERE g.customer_id = @customer AND g.revoked_at IS NULL
		      AND NOT EXISTS (SELECT FROM sensors s WHERE s.customer_id = @customer AND s.node_id = n.node_id)
		    ORDER BY n.node_id, GREATEST(n.last_heartbeat, n.last_reading) DESC NULLS LAST, n.gateway_id
		)
		SELECT h.node_id, h.name AS suggested_name, h.gateway_id, h.gateway_name, h.last_heartbeat, GREATEST(h.last_reading, s.timestamp) AS last_reading,
		       s.temperature, s.humidity
		FROM heard h
		LEFT JOIN node_state s ON s.channel = @customer AND s.node_id = h.node_id
		ORDER BY GREATEST(h.last_heartbeat, h.last_reading, s.timestamp) DESC NULLS LAST, h.node_id
		LIMIT @most`,
		store.Args{"customer": customerID, "most": maxDiscovered}, "discovered nodes of customer %d", customerID)
}
