package incidents

import (
	"context"
	"errors"
	"fmt"
	"time"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/store"
)

// ErrThresholdRule refuses to delete a threshold rule, or to change anything but its limit.
var ErrThresholdRule = errors.New("only the limit of a threshold rule can be changed")

// RuleRow is a row of the view customer_rules.
type RuleRow struct {
	incident.Rule

	Assumed   bool       // a threshold that the customer never set: its limit is the default
	ChangedAt *time.Time // null: never, as far as recorded
}

// RuleObject is the [incident.Rule] of a row r of the view customer_rules, for a list of them in one column.
const RuleObject = `json_build_object(
	    'ID', r.id, 'Version', r.version, 'Quantity', r.quantity, 'Direction', r.direction, 'Limit', r.limit_value,
	    'For', round(r.for_s * 1e9)::bigint, 'ClearMargin', r.clear_margin, 'ClearFor', round(r.clear_for_s * 1e9)::bigint, 'Severity', r.severity,
	    'Scope', json_build_object('RoomID', r.room_id, 'SensorID', r.node_id), 'Enabled', r.enabled, 'Threshold', r.threshold)`

// Columns: a reading is judged by up to 200 rules, of which objects take five times as long.
const selectRules = `
		SELECT r.id, r.version, '' AS kind, r.quantity, r.direction, r.limit_value AS limit, round(r.for_s * 1e9)::bigint AS for,
		       r.clear_margin, round(r.clear_for_s * 1e9)::bigint AS clear_for, r.severity, ROW(r.room_id, r.node_id) AS scope,
		       r.enabled, r.threshold, r.assumed, r.changed_at
		FROM customer_rules r`

// ConvertRules returns the rules of rows.
func ConvertRules(rows []RuleRow, defaults alert.Thresholds) []incident.Rule {
	limits := map[incident.Quantity]float64{incident.Temperature: defaults.MaxTemperature, incident.Humidity: defaults.MaxHumidity}
	rules := make([]incident.Rule, len(rows))
	for i, r := range rows {
		rules[i] = r.Rule
		if r.Assumed {
			rules[i].Limit = limits[r.Quantity]
		}
	}
	return rules
}

// Rules lists a customer's rules: the two threshold rules, then the others, oldest first.
// Thresholds that the customer never set have their default limits.
func (s Store) Rules(ctx context.Context, customerID int64) ([]incident.Rule, error) {
	rows, err := store.All[RuleRow](ctx, s.db, selectRules+`
		WHERE r.customer_id = @customer
		ORDER BY NOT r.threshold, r.id`,
		store.Args{"customer": customerID}, "rules of customer %d", customerID)
	return ConvertRules(rows, alert.Defaults()), err
}

// UnmeasuredRules lists a customer's rules that judge nothing: sensors in their scope have
// reported in the last 7 days, but none of them the quantity. A dew point needs both values.
func (s Store) UnmeasuredRules(ctx context.Context, customerID int64) ([]int64, error) {
	return store.Values[int64](ctx, s.db, `
		SELECT r.id
		FROM customer_rules r
		JOIN sensors s ON s.customer_id = r.customer_id AND r.room_id IN (0, s.room_id) AND r.node_id IN ('', s.node_id)
		JOIN live_states n ON n.customer_id = s.customer_id AND n.node_id = s.node_id AND n.timestamp > now() - interval '7 days'
		WHERE r.customer_id = @customer
		GROUP BY r.id
		HAVING NOT bool_or((r.quantity = 'humidity' OR n.temperature_at > now() - interval '7 days') IS TRUE
		    AND (r.quantity NOT IN ('humidity', 'dew_point') OR n.humidity_at > now() - interval '7 days') IS TRUE)
		ORDER BY r.id`, store.Args{"customer": customerID}, "unmeasured rules of customer %d", customerID)
}

// RulesDeletedWith lists a customer's rules for a sensor, or for a room and its sensors, which are
// deleted with it.
func (s Store) RulesDeletedWith(ctx context.Context, customerID int64, scope incident.Scope) ([]incident.Rule, error) {
	rows, err := store.All[RuleRow](ctx, s.db, selectRules+`
		WHERE r.customer_id = @customer
		  AND (r.room_id = NULLIF(@room::bigint, 0) OR r.node_id = NULLIF(@node, '')
		       OR r.node_id IN (SELECT s.node_id FROM sensors s WHERE s.customer_id = @customer AND s.room_id = @room))
		ORDER BY r.id`,
		store.Args{"customer": customerID, "room": scope.RoomID, "node": scope.SensorID}, "rules of a deleted room or sensor")
	return ConvertRules(rows, alert.Defaults()), err
}

// Rule returns a customer's rule, or [store.ErrNoRule].
func (s Store) Rule(ctx context.Context, customerID, id int64) (incident.Rule, error) {
	row, err := store.One[RuleRow](ctx, s.db, store.ErrNoRule, selectRules+`
		WHERE r.customer_id = @customer AND r.id = @id`,
		store.Args{"customer": customerID, "id": id}, "rule %d", id)
	return ConvertRules([]RuleRow{row}, alert.Defaults())[0], err
}

func ruleArgs(customerID int64, r incident.Rule) store.Args {
	return store.Args{
		"customer": customerID, "quantity": string(r.Quantity), "direction": string(r.Direction), "limit": r.Limit,
		"for": r.For.Seconds(), "margin": r.ClearMargin, "clear_for": r.ClearFor.Seconds(), "severity": string(r.Severity),
		"enabled": r.Enabled, "room": r.Scope.RoomID, "node": r.Scope.SensorID,
	}
}

// CreateRule adds a rule that judges readings from now on. Errors: [store.ErrNoRoom] and
// [store.ErrNoSensor] if its scope is not the customer's.
func (s Store) CreateRule(ctx context.Context, customerID int64, r incident.Rule) (incident.Rule, error) {
	id, err := store.Value[int64](ctx, s.db, store.ErrNoCustomer, `
		INSERT INTO rules (customer_id, quantity, direction, limit_value, for_s, clear_margin, clear_for_s, severity, room_id, node_id, enabled)
		VALUES (@customer, @quantity, @direction, @limit, @for, @margin, @clear_for, @severity, NULLIF(@room::bigint, 0), NULLIF(@node, ''), @enabled)
		RETURNING id`, ruleArgs(customerID, r), "create rule")
	if err != nil {
		return incident.Rule{}, err
	}
	return s.Rule(ctx, customerID, id)
}

// UpdateRule changes a customer's rule and resolves its excursions in one transaction; an
// update that changes nothing leaves them. Only the limit of a threshold rule can change,
// and with it the customer's thresholds: anything else is [ErrThresholdRule]. Other errors
// are those of [Store.CreateRule], and [store.ErrNoRule].
func (s Store) UpdateRule(ctx context.Context, customerID int64, r incident.Rule) (incident.Rule, error) {
	before, err := s.Rule(ctx, customerID, r.ID)
	if err != nil {
		return incident.Rule{}, fmt.Errorf("update: %w", err)
	}
	if before.Threshold {
		return s.updateThreshold(ctx, customerID, before, r)
	}
	args := ruleArgs(customerID, r)
	args["id"] = r.ID
	err = s.db.Exec(ctx, `
		UPDATE rules
		SET quantity = @quantity, direction = @direction, limit_value = @limit, for_s = @for, clear_margin = @margin,
		    clear_for_s = @clear_for, severity = @severity, room_id = NULLIF(@room::bigint, 0), node_id = NULLIF(@node, ''), enabled = @enabled
		WHERE id = @id AND customer_id = @customer
		  AND (quantity, direction, limit_value, for_s, clear_margin, clear_for_s, severity, COALESCE(room_id, 0), COALESCE(node_id, ''), enabled)
		      IS DISTINCT FROM (@quantity, @direction, @limit, @for, @margin, @clear_for, @severity, @room, @node, @enabled)`, args,
		"update rule %d", r.ID)
	if err != nil {
		return incident.Rule{}, err
	}
	return s.Rule(ctx, customerID, r.ID)
}

func (s Store) updateThreshold(ctx context.Context, customerID int64, before, r incident.Rule) (incident.Rule, error) {
	wanted := before
	wanted.Limit, wanted.Version, r.Version, r.Threshold = r.Limit, 0, 0, true
	if r != wanted {
		return incident.Rule{}, fmt.Errorf("update rule %d: %w", r.ID, ErrThresholdRule)
	}
	limits := map[incident.Quantity]*float64{r.Quantity: &r.Limit}
	if _, err := s.SetThresholds(ctx, customerID, limits[incident.Temperature], limits[incident.Humidity]); err != nil {
		return incident.Rule{}, fmt.Errorf("update rule %d: %w", r.ID, err)
	}
	return s.Rule(ctx, customerID, r.ID)
}

// DeleteRule deletes a customer's rule and resolves its excursions. Errors: [store.ErrNoRule];
// [ErrThresholdRule], for a threshold rule.
func (s Store) DeleteRule(ctx context.Context, customerID, id int64) error {
	err := s.db.Change(ctx, ErrThresholdRule, `
		DELETE FROM rules
		WHERE id = @id AND customer_id = @customer`,
		store.Args{"id": id, "customer": customerID}, "delete rule %d", id)
	if errors.Is(err, ErrThresholdRule) {
		if _, absent := s.Rule(ctx, customerID, id); absent != nil {
			err = absent
		}
	}
	return err
}
