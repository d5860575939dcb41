package alerting

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// maxRules is how many rules a customer may have. Detection compares each reading
// with all that apply.
const maxRules = 200

var errTooManyRules = rest.BadRequest(fmt.Sprintf("At most %d rules are possible", maxRules))

// Scope is where a rule or a window applies.
type Scope struct {
	RoomID   *int64        `json:"room_id,omitempty" minimum:"1" doc:"Only for sensors of this room." example:"3"`
	SensorID *input.NodeID `json:"sensor_id,omitempty" doc:"Only for this sensor." example:"esp32-7f3a"`
}

func (s Scope) scope() incident.Scope {
	return incident.Scope{RoomID: deref(s.RoomID), SensorID: string(deref(s.SensorID))}
}

// Resolve refuses a scope of both a room and a sensor.
func (s *Scope) Resolve(_ huma.Context, path *huma.PathBuffer) []error {
	return input.Check(s.RoomID == nil || s.SensorID == nil, path.With("sensor_id"), "cannot be combined with room_id")
}

// RuleFields are the fields of a rule that a caller sets.
type RuleFields struct {
	Quantity    string  `json:"quantity" enum:"temperature,humidity,dew_point,temperature_rate" doc:"What it watches: °C, %, °C, or °C per hour over 10 minutes." example:"temperature"`
	Direction   string  `json:"direction" enum:"above,below" doc:"On which side of the limit it fires." example:"above"`
	Limit       float64 `json:"limit" minimum:"-1000" maximum:"1000" doc:"The limit, in the unit of the quantity; a value equal to it does not fire." example:"27"`
	ForS        float64 `json:"for_s" minimum:"0" maximum:"3600" doc:"How many seconds the limit must be broken before it fires." example:"120"`
	ClearMargin float64 `json:"clear_margin" minimum:"0" maximum:"50" doc:"How far back from the limit the value must come, in the same unit." example:"0.5"`
	ClearForS   float64 `json:"clear_for_s" minimum:"0" maximum:"3600" doc:"How many seconds it must stay there before the incident ends." example:"120"`
	Severity    string  `json:"severity" enum:"warning,critical" doc:"How urgent an incident is." example:"warning"`
	Enabled     bool    `json:"enabled" doc:"Whether it judges readings." example:"true"`
}

// RuleChange is a rule as a caller sets it.
type RuleChange struct {
	_ struct{} `additionalProperties:"true"`
	RuleFields
	Scope
}

type ruleReplacement struct {
	_ struct{} `additionalProperties:"true"`
	RuleChange

	Version *int64 `json:"version,omitempty" doc:"That of the rule which it replaces; if there is a newer one, nothing is replaced." example:"1"`
}

func (c *RuleChange) rule() incident.Rule {
	return incident.Rule{
		Quantity: incident.Quantity(c.Quantity), Direction: incident.Direction(c.Direction), Limit: c.Limit + 0, For: seconds(c.ForS), // 0 for -0
		ClearMargin: c.ClearMargin + 0, ClearFor: seconds(c.ClearForS), Severity: incident.Severity(c.Severity), Scope: c.scope(), Enabled: c.Enabled,
	}
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// Resolve refuses what the schema cannot: a limit outside the range of its quantity, and
// a scope of both a room and a sensor.
func (c *RuleChange) Resolve(ctx huma.Context, path *huma.PathBuffer) []error {
	within := !errors.Is(c.rule().Validate(), incident.ErrLimit)
	return append(c.Scope.Resolve(ctx, path), input.Check(within, path.With("limit"), "must lie within the range of the quantity")...)
}

type rule struct {
	ID      int64 `json:"id" doc:"Primary key." example:"12"`
	Version int64 `json:"version" doc:"Grows with every change." example:"1"`
	RuleFields

	RoomID    *int64  `json:"room_id" doc:"Only for sensors of this room; null for all." example:"3"`
	SensorID  *string `json:"sensor_id" doc:"Only for this sensor; null for all." example:"esp32-7f3a"`
	Threshold bool    `json:"threshold" doc:"Whether it is one of the two thresholds, of which only the limit can be changed." example:"false"`

	Unmeasured *bool      `json:"unmeasured,omitempty" doc:"In the list: whether it can judge nothing, as sensors of its scope report, and none its quantity." example:"false"`
	Conflicts  []conflict `json:"conflicts,omitempty" nullable:"false" doc:"In the list: the rules that it contradicts where both judge."`
}

type conflict struct {
	RuleID int64  `json:"rule_id" doc:"The other rule." example:"14"`
	Why    string `json:"why" enum:"always_broken,warns_too_late,same_conditions" doc:"always_broken, every value breaks one of the two; warns_too_late, the warning fires only where the critical rule does; same_conditions, they differ in the limit alone." example:"warns_too_late"`
}

func fieldsOf(r incident.Rule) RuleFields {
	return RuleFields{
		Quantity: string(r.Quantity), Direction: string(r.Direction), Limit: r.Limit, ForS: r.For.Seconds(),
		ClearMargin: r.ClearMargin, ClearForS: r.ClearFor.Seconds(), Severity: string(r.Severity), Enabled: r.Enabled,
	}
}

func ruleOf(r incident.Rule) rule {
	return rule{
		ID: r.ID, Version: r.Version, RuleFields: fieldsOf(r),
		RoomID: rest.OrNull(r.Scope.RoomID), SensorID: rest.OrNull(r.Scope.SensorID), Threshold: r.Threshold,
	}
}

type rulePath struct {
	RuleID int64 `path:"rule_id" doc:"Id of one of the caller's rules." example:"12"`
}

type updateRuleInput struct {
	RuleID int64 `path:"rule_id" doc:"Id of one of the caller's rules." example:"12"`
	Body   ruleReplacement
}

var errNewerRule = rest.Conflict("Somebody has changed this rule meanwhile")

func (h *Handlers) registerRules(r *rest.API) {
	rest.Answer(r, rest.Operation{
		ID: "listRules", Role: rest.Viewer, Keys: rest.ReadKeys, Method: http.MethodGet, Path: "/api/v1/rules", Tag: rest.TagIncidents,
		Summary:     "List the caller's rules, the two thresholds first",
		Description: "Among rules of one quantity, direction and severity the narrowest scope judges a sensor; the thresholds judge all sensors.",
	}, h.listRules)
	// Without an Idempotency-Key a repeat makes a second rule, and each makes excursions.
	rest.Answer(r, rest.Operation{
		ID: "createRule", Role: rest.Admin, Keys: rest.WriteKeys, Creates: true, Method: http.MethodPost, Path: "/api/v1/rules", Tag: rest.TagIncidents,
		Status: http.StatusCreated, Summary: "Create a rule",
	}, h.createRule, store.ErrNoRoom, store.ErrNoSensor, errTooManyRules)
	// A repeat changes nothing.
	rest.Answer(r, rest.Operation{
		ID: "updateRule", Role: rest.Admin, Keys: rest.WriteKeys, Method: http.MethodPut, Path: "/api/v1/rules/{rule_id}", Tag: rest.TagIncidents,
		Summary:     "Replace a rule",
		Description: "Its lasting excursions are resolved, with that reason, unless nothing changes. Only the limit of a threshold can be changed.",
	}, h.updateRule, store.ErrNoRule, store.ErrNoRoom, store.ErrNoSensor, incidents.ErrThresholdRule, errNewerRule)
	rest.Register(r, rest.Operation{
		ID: "deleteRule", Role: rest.Admin, Keys: rest.WriteKeys, Method: http.MethodDelete, Path: "/api/v1/rules/{rule_id}", Tag: rest.TagIncidents,
		Summary:     "Delete a rule",
		Description: "Its lasting excursions are resolved, with that reason. The thresholds cannot be deleted.",
	}, h.deleteRule, store.ErrNoRule, incidents.ErrThresholdRule)
	rest.Answer(r, rest.Operation{
		ID: "listPresets", Role: rest.Viewer, Keys: rest.ReadKeys, Method: http.MethodGet, Path: "/api/v1/rules/presets", Tag: rest.TagIncidents,
		Summary:     "List the presets: sets of rules to apply with one call",
		Description: "Limits of ASHRAE TC 9.9, Thermal Guidelines for Data Processing Environments, 5th edition (2021).",
	}, h.presets)
	// A repeat adds nothing.
	rest.Answer(r, rest.Operation{
		ID: "applyPreset", Role: rest.Admin, Keys: rest.WriteKeys, Creates: true, Method: http.MethodPost, Path: "/api/v1/rules/preset", Tag: rest.TagIncidents,
		Summary: "Add the rules of a preset that are not there yet",
	}, h.applyPreset, store.ErrNoRoom, store.ErrNoSensor, errTooManyRules)
	// Called by the setup page.
	rest.Answer(r, rest.Operation{
		ID: "suggestLimits", Role: rest.Viewer, Keys: rest.ReadKeys, Method: http.MethodGet, Path: "/api/v1/rules/suggestions", Tag: rest.TagIncidents,
		Summary: "Suggest a temperature limit to each room that has no lower one",
	}, h.suggestions)
	// Called while somebody edits a rule. It changes nothing, though it is POST.
	rest.Answer(r, rest.Operation{
		ID: "previewRules", Role: rest.Viewer, Keys: rest.ReadKeys, Method: http.MethodPost, Path: "/api/v1/rules/preview", Tag: rest.TagIncidents,
		Summary: "Count the incidents and excursions that rules would have made",
		Description: "By the stored readings of the last days. Each counts on the day (UTC) on which it began. " +
			"Incidents are made only of these rules' excursions. Where the account has a narrower rule of the same kind, that one would judge.",
	}, h.preview, store.ErrNoRoom, store.ErrNoSensor, errSlowPreview)
}

func (h *Handlers) listRules(ctx context.Context, _ *struct{}) ([]rule, error) {
	found, err := incidents.New(h.DB).Rules(ctx, auth.Caller(ctx))
	if err != nil {
		return nil, err
	}
	unmeasured, err := incidents.New(h.DB).UnmeasuredRules(ctx, auth.Caller(ctx))
	if err != nil {
		return nil, err
	}
	live, err := incidents.New(h.DB).LiveSensors(ctx, auth.Caller(ctx))
	if err != nil {
		return nil, err
	}
	rooms := roomsOf(live)
	return rest.List(found, func(r incident.Rule) rule {
		listed := ruleOf(r)
		listed.Unmeasured = new(slices.Contains(unmeasured, r.ID))
		listed.Conflicts = rest.List(incident.Conflicts(r, found, func(sensorID string) int64 { return rooms[sensorID] }),
			func(c incident.Conflict) conflict { return conflict{RuleID: c.With.ID, Why: string(c.Why)} })
		return listed
	}), nil
}

// roomsOf returns the rooms of sensors by their ids.
func roomsOf(live []incidents.LiveSensor) map[string]int64 {
	rooms := make(map[string]int64, len(live))
	for _, l := range live {
		rooms[l.NodeID] = l.RoomID
	}
	return rooms
}

func (h *Handlers) createRule(ctx context.Context, in *rest.Body[RuleChange]) (rule, error) {
	return audit.Changed(ctx, h.DB, func(tx *store.DB) (rule, audit.Entry, error) {
		existing, err := incidents.New(tx).Rules(ctx, auth.Caller(ctx))
		if err != nil {
			return rule{}, audit.Entry{}, err
		}
		if len(existing) >= maxRules {
			return rule{}, audit.Entry{}, errTooManyRules
		}
		stored, err := incidents.New(tx).CreateRule(ctx, auth.Caller(ctx), in.Body.rule())
		created := ruleOf(stored)
		return created, audit.Entry{Subject: audit.Subject("rule", stored.ID), After: created}, err
	})
}

func (h *Handlers) updateRule(ctx context.Context, in *updateRuleInput) (rule, error) {
	wanted := in.Body.rule()
	wanted.ID = in.RuleID
	return audit.Updated(ctx, h.DB, audit.Subject("rule", in.RuleID), ruleOf,
		func(tx *store.DB) (incident.Rule, error) {
			return incidents.New(tx).Rule(ctx, auth.Caller(ctx), in.RuleID)
		},
		func(tx *store.DB, before incident.Rule) (incident.Rule, error) {
			repeat := wanted
			repeat.Version, repeat.Threshold = before.Version, before.Threshold
			if in.Body.Version != nil && *in.Body.Version != before.Version && repeat != before {
				return incident.Rule{}, errNewerRule
			}
			return incidents.New(tx).UpdateRule(ctx, auth.Caller(ctx), wanted)
		})
}

func (h *Handlers) deleteRule(ctx context.Context, in *rulePath) (*struct{}, error) {
	return nil, audit.Change(ctx, h.DB, func(tx *store.DB) (audit.Entry, error) {
		before, err := incidents.New(tx).Rule(ctx, auth.Caller(ctx), in.RuleID)
		if err != nil {
			return audit.Entry{}, err
		}
		return audit.Entry{Subject: audit.Subject("rule", in.RuleID), Before: ruleOf(before)}, incidents.New(tx).DeleteRule(ctx, auth.Caller(ctx), in.RuleID)
	})
}

type preset struct {
	Preset string       `json:"preset" doc:"Name of the preset." example:"ashrae_recommended"`
	Rules  []RuleFields `json:"rules" nullable:"false" doc:"Its rules."`
}

func (h *Handlers) presets(context.Context, *struct{}) ([]preset, error) {
	var out []preset
	for _, name := range incident.Presets() {
		rules, err := name.Rules(incident.Scope{})
		if err != nil {
			return nil, err
		}
		out = append(out, preset{Preset: string(name), Rules: rest.List(rules, fieldsOf)})
	}
	return out, nil
}

type suggestion struct {
	RoomID      int64      `json:"room_id" doc:"Room to which the rule would apply." example:"3"`
	Highest     float64    `json:"highest" doc:"Highest temperature in the room in the last day, in degrees Celsius." example:"24.1"`
	Recommended bool       `json:"recommended" doc:"Whether the limit is the recommended range's (ASHRAE TC 9.9); otherwise it lies 5 °C above the highest temperature." example:"true"`
	Rule        RuleFields `json:"rule" doc:"The rule to create."`
}

func (h *Handlers) suggestions(ctx context.Context, _ *struct{}) ([]suggestion, error) {
	db, customer := incidents.New(h.DB), auth.Caller(ctx)
	rules, err := db.Rules(ctx, customer)
	if err != nil {
		return nil, err
	}
	live, err := db.LiveSensors(ctx, customer)
	if err != nil {
		return nil, err
	}
	hot, err := db.HotSpots(ctx, customer, h.Clock().Add(-24*time.Hour), nil)
	if err != nil {
		return nil, err
	}
	rooms := roomsOf(live)
	highest := map[int64]float64{}
	for _, node := range hot {
		t, room := slices.Max(node.Temperatures), rooms[node.NodeID]
		if before, known := highest[room]; !known || t > before {
			highest[room] = t
		}
	}
	out := []suggestion{}
	for _, room := range slices.Sorted(maps.Keys(highest)) {
		wanted, recommended := incident.Suggested(room, highest[room])
		if !slices.ContainsFunc(incident.Effective(rules, room, ""), func(r incident.Rule) bool {
			return r.Quantity == wanted.Quantity && r.Direction == wanted.Direction && r.Limit <= wanted.Limit
		}) {
			out = append(out, suggestion{RoomID: room, Highest: highest[room], Recommended: recommended, Rule: fieldsOf(wanted)})
		}
	}
	return out, nil
}

type presetChoice struct {
	_      struct{} `additionalProperties:"true"`
	Preset string   `json:"preset" enum:"ashrae_recommended,ashrae_recommended_corrosive,ashrae_a1,ashrae_a2,ashrae_a3,ashrae_a4,ashrae_rate,ashrae_rate_tape" doc:"Name of the preset." example:"ashrae_recommended"`
	Scope
}

func (h *Handlers) applyPreset(ctx context.Context, in *rest.Body[presetChoice]) ([]rule, error) {
	wanted, err := incident.Preset(in.Body.Preset).Rules(in.Body.scope())
	if err != nil {
		return nil, err
	}
	return audit.Changed(ctx, h.DB, func(tx *store.DB) ([]rule, audit.Entry, error) {
		existing, err := incidents.New(tx).Rules(ctx, auth.Caller(ctx))
		if err != nil {
			return nil, audit.Entry{}, err
		}
		if len(existing)+len(wanted) > maxRules {
			return nil, audit.Entry{}, errTooManyRules
		}
		var applied, added []rule
		for _, r := range wanted {
			same := slices.IndexFunc(existing, func(e incident.Rule) bool {
				e.ID, e.Version = 0, 0
				return e == r
			})
			if same >= 0 {
				applied = append(applied, ruleOf(existing[same]))
				continue
			}
			created, err := incidents.New(tx).CreateRule(ctx, auth.Caller(ctx), r)
			if err != nil {
				return nil, audit.Entry{}, err
			}
			applied, added = append(applied, ruleOf(created)), append(added, ruleOf(created))
		}
		if len(added) == 0 {
			return applied, audit.Entry{}, nil
		}
		return applied, audit.Entry{Subject: "preset:" + in.Body.Preset, After: added}, nil
	})
}
