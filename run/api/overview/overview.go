// Package overview has the operations that pages poll and that a Prometheus server scrapes: the
// current state of all the caller's rooms and sensors. It reads the metadata database only.
package overview

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/errgroup"

	"coldaisle.dev/run/api/alerting"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/parallel"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
)

// Head holds the fields that differ between answers even if nothing has changed. Like [Body]
// it is exported only because huma ignores embedded fields of unexported types.
type Head struct {
	Time  rest.Time  `json:"time" doc:"Time of the answer, UTC." example:"2026-03-01T12:00:00Z"`
	Probe probeState `json:"probe" doc:"How late the probe is, a reading that the service itself publishes each minute."`
	// Watched and WatchProblems are for callers of all rooms.
	Watched       bool     `json:"watched" doc:"Whether a program on site that calls people has reported; always true for callers of some rooms." example:"true"`
	WatchProblems []string `json:"watch_problems" nullable:"false" doc:"What is wrong with the programs on site that call people, in words; empty while all is well, and without one." example:"[\"Nobody would be woken: the watch of Zurich has been silent for 20 min\"]"`
}

type probeState struct {
	Late      bool       `json:"late" doc:"Whether the service is late: then no sensor counts as silent." example:"false"`
	LatenessS float64    `json:"lateness_s" doc:"By how many seconds the next reading of the probe is overdue." example:"0"`
	Published *rest.Time `json:"published" nullable:"true" doc:"When the newest readable one was published, UTC; null before the first." example:"2026-03-01T11:59:00Z"`
}

type liveRoom struct {
	ID    int64  `json:"id" doc:"Primary key." example:"3"`
	Name  string `json:"name" doc:"Name of the room." example:"Hall A"`
	State string `json:"state" enum:"ok,warning,critical,silent,late,unreported" doc:"The worst state of its sensors." example:"ok"`

	MaxTemperature *float64 `json:"max_temperature" doc:"Of its sensors that report, the highest newest one, in degrees Celsius; null without one." example:"26.1"`
	Change15m      *float64 `json:"change_15m" doc:"By how many degrees Celsius the sensor with that temperature is warmer than 15 minutes ago; null where it did not report then." example:"0.4"`

	hottest string // the sensor with that temperature
}

type liveLimit struct {
	Quantity  string  `json:"quantity" enum:"temperature,humidity,dew_point,temperature_rate" doc:"What the rule watches: °C, %, °C, or °C per hour." example:"temperature"`
	Direction string  `json:"direction" enum:"above,below" doc:"On which side of the limit it fires." example:"above"`
	Limit     float64 `json:"limit" doc:"The limit, in the unit of the quantity." example:"27"`
	Severity  string  `json:"severity" enum:"warning,critical" doc:"How urgent an incident is." example:"warning"`
}

type liveSensor struct {
	ID          string     `json:"id" doc:"Identifier of the node hardware." example:"esp32-7f3a"`
	Name        string     `json:"name" doc:"Name of the sensor." example:"Rack 3"`
	RoomID      int64      `json:"room_id" doc:"Room of the sensor." example:"3"`
	Position    *string    `json:"position" doc:"Where in the room; null when not given. One that begins with a floor tile, such as C7, has a place on the room's map." example:"C7 U40"`
	State       string     `json:"state" enum:"ok,warning,critical,silent,late,unreported" doc:"The first that applies: critical, an incident of that severity lasts; silent, its readings have stopped; warning, an incident of that severity lasts; unreported, it has never sent a reading; late, its reading is overdue while the service is late; ok, none of these." example:"ok"`
	Reports     bool       `json:"reports" doc:"Whether its readings come: they are neither overdue nor has it never sent one." example:"true"`
	Temperature *float64   `json:"temperature" doc:"Newest, in degrees Celsius; null before the first." example:"24.3"`
	Humidity    *float64   `json:"humidity" doc:"Newest relative humidity in percent; null before the first." example:"41.2"`
	Timestamp   *time.Time `json:"timestamp" doc:"Time of the newest reading, UTC, in whole seconds; null before the first." example:"2026-03-01T12:00:00Z"`
	GatewayID   *string    `json:"gateway_id" doc:"Enrolled gateway that sent it; null for others." example:"gw-4f7q2m5n3xk6d2hwz7ab"`
	JudgedBy    string     `json:"judged_by" enum:"window,live_state,learning,nothing" doc:"What learning compares its readings with: window, the readings sent along with each; live_state, what is stored of it, because none are sent along, as after the start of a gateway or by another maker's; learning, too little yet, because fewer than four half hours of the day have a reading; nothing, none was judged yet." example:"window"`
	Learning    *rest.Time `json:"learning_since" nullable:"true" doc:"While judged_by is learning: when the first reading that it learns from was taken, UTC." example:"2026-03-01T10:42:00Z"`
	IntervalS   *float64   `json:"interval_s" doc:"Seconds between its readings, usually; null while that is not known." example:"30"`
	Limits      int        `json:"limits" doc:"Index of the list in limits that applies." example:"0"`
	Sparkline   string     `json:"sparkline" doc:"The highest temperature of each half hour from sparkline_start, in tenths of a degree: the first as it is, each further one as the difference from the one before; separated by commas, empty where there is no reading. Empty ones at the end are left out." example:"243,0,1,,-2"`

	values incident.Point // those that still come
}

type sensorCounts struct {
	Sensors    int `json:"sensors" doc:"All sensors." example:"12"`
	Reporting  int `json:"reporting" doc:"Sensors whose readings come." example:"10"`
	OK         int `json:"ok" doc:"Sensors in this state." example:"9"`
	Warning    int `json:"warning" doc:"Sensors in this state." example:"1"`
	Critical   int `json:"critical" doc:"Sensors in this state." example:"1"`
	Silent     int `json:"silent" doc:"Sensors in this state." example:"1"`
	Late       int `json:"late" doc:"Sensors in this state." example:"0"`
	Unreported int `json:"unreported" doc:"Sensors in this state." example:"0"`
}

// Body holds the fields that the entity tag covers.
type Body struct {
	Sentence       sentence            `json:"sentence" doc:"What to say first, in parts."`
	Rooms          []liveRoom          `json:"rooms" nullable:"false" doc:"All rooms, worst first: by the worst state of their sensors, one that reports first, then by how far an incident is beyond its limit, then by how far a sensor is beyond the recommended 18 to 27 °C, then by name."`
	Limits         [][]liveLimit       `json:"limits" nullable:"false" doc:"The limits of the rules that apply to a sensor, each list once."`
	SparklineStart time.Time           `json:"sparkline_start" doc:"Begin of the first half hour of the sparklines, UTC." example:"2026-02-28T12:30:00Z"`
	Sensors        []liveSensor        `json:"sensors" nullable:"false" doc:"All sensors, by id."`
	Incidents      []alerting.Incident `json:"incidents" nullable:"false" doc:"All incidents that last, the one that matters most first."`
	IncidentCounts incidentCounts      `json:"incident_counts" doc:"How many incidents there are, exactly."`
	Counts         sensorCounts        `json:"counts" doc:"How many sensors are in each state."`
}

// overview is the whole answer as the document has it.
type overview struct {
	Head
	Body
}

// Handlers answer the operations.
type Handlers struct {
	DB    *store.DB
	Clock func() time.Time

	views *lru.Cache[string, *view] // by customer, and the rooms of a key
}

// maxViews bounds the views that are kept between requests, each of half a megabyte for a
// thousand sensors.
const maxViews = 100

type input struct {
	IfNoneMatch string `header:"If-None-Match" doc:"The ETag of the last answer: 304 if nothing has changed." example:"W/\"6f1d\""`
}

// Register adds the operations.
func (h *Handlers) Register(r *rest.API) {
	h.views, _ = lru.New[string, *view](maxViews) // it fails for sizes below one alone
	schema := r.Schemas().Schema(reflect.TypeFor[overview](), true, "Overview")
	tag := map[string]*huma.Param{"ETag": {Description: "Changes with the answer, except for its time and the probe.", Schema: &huma.Schema{Type: huma.TypeString}}}
	// Polled by every open page each 10 to 15 seconds.
	rest.Register(r, rest.Operation{
		ID: "getOverview", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/overview", Tag: rest.TagData,
		Summary:     "Read the current state: rooms, sensors, newest readings, lasting incidents",
		Description: "One request for a page that shows everything. Send `If-None-Match`: an unchanged answer is 304.",
		Responses: map[string]*huma.Response{
			"200": {Description: "OK", Headers: tag, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}},
			"304": {Description: "Not Modified", Headers: tag},
		},
	}, h.overview)
	h.registerMetrics(r)
}

func (h *Handlers) overview(ctx context.Context, in *input) (*huma.StreamResponse, error) {
	customer := auth.Caller(ctx)
	seen := fmt.Sprint(customer, store.RoomsOf(ctx))
	v := &view{turn: make(chan struct{}, 1)}
	if kept, ok := h.views.Get(seen); ok {
		v = kept
	} else if kept, ok, _ := h.views.PeekOrAdd(seen, v); ok {
		v = kept
	}
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another overview: %w", ctx.Err())
	}
	now := h.Clock()
	if err := h.refresh(ctx, v, customer, now); err != nil {
		return nil, fmt.Errorf("overview: %w", err)
	}
	published := rest.OptionalUTC(store.OrNull(v.probe.Published))
	first, err := rest.Encode(Head{
		Time: rest.UTC(now), Watched: v.watched, WatchProblems: v.problems,
		Probe: probeState{Late: v.probe.Late(now), LatenessS: v.probe.Lateness(now).Seconds(), Published: published},
	})
	if err != nil {
		return nil, err
	}
	tag, second := v.tag, v.body
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		hc.SetHeader("Cache-Control", "private, no-cache")
		hc.SetHeader("ETag", tag)
		if rest.Matches(in.IfNoneMatch, tag) {
			hc.SetStatus(http.StatusNotModified)
			return
		}
		hc.SetHeader("Content-Type", "application/json")
		hc.SetStatus(http.StatusOK)
		for _, part := range [][]byte{bytes.TrimSuffix(first, []byte("}")), []byte(","), bytes.TrimPrefix(second, []byte("{")), []byte("\n")} {
			_, _ = hc.BodyWriter().Write(part) // the client may have gone
		}
	}}, nil
}

// watches returns whether there is one, and what is wrong with each.
func (h *Handlers) watches(ctx context.Context, customer int64, probe incident.Probe, now time.Time) (bool, []string, error) {
	if store.RoomsOf(ctx) != nil {
		return true, []string{}, nil
	}
	found, err := accounts.New(h.DB).Watches(ctx, customer)
	problems := accounts.WatchProblems(found, probe, now)
	words := []string{}
	for _, w := range found {
		if problem, ok := problems[w.ID]; ok {
			words = append(words, problem)
		}
	}
	return len(found) > 0, words, err
}

// answers holds the results of the queries for an overview.
type answers struct {
	anew     reread
	live     []incidents.LiveSensor
	rooms    []accounts.Room
	rules    []incident.Rule
	lasting  []incidents.Incident
	unseen   int
	troubled map[string]incidents.Troubled
}

// query runs the independent queries concurrently, because they take most of the time.
func (h *Handlers) query(ctx context.Context, v *view, customer int64, now time.Time) (a answers, err error) {
	known := incidents.New(h.DB)
	group, groupCtx := errgroup.WithContext(ctx)
	readLive := sync.OnceValues(func() ([]incidents.LiveSensor, error) { return known.LiveSensors(groupCtx, customer) })
	group.Go(func() (err error) { // first, because it takes the longest
		defer parallel.Recover(&err)
		_, err = readLive()
		return err
	})
	group.Go(func() (err error) {
		defer parallel.Recover(&err)
		if a.anew, err = v.day.look(groupCtx, known, customer, now); err != nil {
			return err
		}
		if a.rooms, err = accounts.New(h.DB).Rooms(groupCtx, customer); err != nil {
			return err
		}
		a.rules, err = known.Rules(groupCtx, customer)
		return err
	})
	list := func() (err error) {
		defer parallel.Recover(&err) // the others use the view
		// Transitions due by the clock are written before they are shown.
		if err = known.Settle(groupCtx, customer, now); err != nil {
			return err
		}
		group.Go(func() (err error) {
			defer parallel.Recover(&err)
			if a.unseen, err = known.Unseen(groupCtx, customer); err != nil {
				return err
			}
			a.troubled, err = known.TroubledSensors(groupCtx, customer)
			return err
		})
		a.lasting, err = known.Lasting(groupCtx, customer, readLive, now)
		return err
	}
	listed := list() // on the request's own goroutine, because it computes the most
	if err := cmp.Or(group.Wait(), listed); err != nil {
		return a, fmt.Errorf("read the overview: %w", err)
	}
	a.live, err = readLive()
	return a, err
}

func (h *Handlers) build(ctx context.Context, v *view, customer int64, now time.Time) error {
	known := incidents.New(h.DB)
	read, err := h.query(ctx, v, customer, now)
	if err != nil {
		return err
	}
	v.day.advance(read.anew, read.live, now)
	recommended, err := incident.Recommended.Rules(incident.Scope{})
	if err != nil {
		return err
	}
	if err := v.day.begin(ctx, known, customer, read.live, read.troubled, now); err != nil {
		return err
	}
	real := read.lasting
	if first := slices.IndexFunc(real, func(i incidents.Incident) bool { return i.DrillID != 0 }); first >= 0 {
		real = real[:first] // drills come last
	}
	body := Body{
		Rooms:          rest.List(read.rooms, func(r accounts.Room) liveRoom { return liveRoom{ID: r.ID, Name: r.Name, State: stateOK} }),
		Limits:         [][]liveLimit{},
		SparklineStart: v.day.start,
		Sensors:        make([]liveSensor, len(read.live)),
		Incidents:      rest.List(read.lasting, alerting.IncidentOf),
		IncidentCounts: countIncidents(real, read.unseen),
		Counts:         sensorCounts{Sensors: len(read.live)},
	}
	counts := body.Counts.of()
	applies := limits{rules: read.rules, known: map[incident.Scope]int{}, body: &body}
	for i, l := range read.live {
		troubled := read.troubled[l.NodeID]
		body.Sensors[i] = v.sensor(l, troubled.Anomalous, now)
		body.Sensors[i].State = stateOf(l, troubled.Severity, v.probe, now)
		*counts[body.Sensors[i].State]++
		body.Sensors[i].Limits = applies.of(l)
		if body.Sensors[i].Reports {
			body.Counts.Reporting++
		}
	}
	body.orderRooms(real)
	if err := body.compareRooms(ctx, known, customer, now); err != nil {
		return err
	}
	late := v.probe.Late(now)
	body.Sentence = body.say(real, recommended, late)
	body.Sentence.Drills = len(read.lasting) - len(real)
	return v.encode(body, late)
}

// sensor returns a sensor of the overview without its state and limits.
func (v *view) sensor(l incidents.LiveSensor, anomalous bool, now time.Time) liveSensor {
	s := liveSensor{
		ID: l.NodeID, Name: l.Name, RoomID: l.RoomID, Position: l.Position, Reports: l.Reports(now), Temperature: l.Temperature, Humidity: l.Humidity,
		GatewayID: rest.OrNull(l.GatewayID), IntervalS: rest.OrNull(l.Interval.Seconds()), Sparkline: v.day.sparkline(l.NodeID),
		JudgedBy: v.day.judgedBy(l, anomalous), Learning: rest.OptionalUTC(store.OrNull(v.day.began[l.NodeID])),
	}
	s.values.Temperature, s.values.Humidity = l.Values(v.probe, now)
	if l.Timestamp != nil {
		s.Timestamp = new(l.Timestamp.UTC().Truncate(time.Second))
	}
	return s
}

// of returns the count of each state.
func (c *sensorCounts) of() map[string]*int {
	return map[string]*int{
		stateOK: &c.OK, stateWarning: &c.Warning, stateCritical: &c.Critical, stateSilent: &c.Silent, stateLate: &c.Late, stateUnreported: &c.Unreported,
	}
}

// limits finds the list of limits that applies to a sensor.
type limits struct {
	rules []incident.Rule
	known map[incident.Scope]int // by room, and by sensor where a rule names it
	body  *Body
}

func (a *limits) of(l incidents.LiveSensor) int {
	scope := incident.Scope{RoomID: l.RoomID}
	if slices.ContainsFunc(a.rules, func(r incident.Rule) bool { return r.Scope.SensorID == l.NodeID }) {
		scope.SensorID = l.NodeID
	}
	if place, ok := a.known[scope]; ok {
		return place
	}
	list := rest.List(incident.Effective(a.rules, l.RoomID, l.NodeID), func(r incident.Rule) liveLimit {
		return liveLimit{Quantity: string(r.Quantity), Direction: string(r.Direction), Limit: r.Limit, Severity: string(r.Severity)}
	})
	place := slices.IndexFunc(a.body.Limits, func(other []liveLimit) bool { return slices.Equal(other, list) })
	if place < 0 {
		place, a.body.Limits = len(a.body.Limits), append(a.body.Limits, list)
	}
	a.known[scope] = place
	return place
}

// minAge is the age at which an answer is rebuilt, so that a customer's pages share one. A
// person's change shows at once.
const minAge = time.Second

// view is the last answer to one customer, with the state that it was built from.
type view struct {
	turn chan struct{} // semaphore that guards the rest

	version  string
	watched  bool
	problems []string
	probe    incident.Probe
	built    time.Time
	day      day
	body     []byte
	tag      string
}

func (h *Handlers) refresh(ctx context.Context, v *view, customer int64, now time.Time) (err error) {
	if v.probe, err = incidents.New(h.DB).Probe(ctx); err != nil {
		return err
	}
	if v.watched, v.problems, err = h.watches(ctx, customer, v.probe, now); err != nil {
		return err
	}
	// Read before everything else, so that a change during the reading gets another version.
	version, err := incidents.New(h.DB).LiveVersion(ctx, customer)
	if err != nil {
		return err
	}
	version += fmt.Sprint(v.watched, v.problems)
	if age := now.Sub(v.built); v.tag != "" && version == v.version && age >= 0 && age < minAge {
		return nil
	}
	v.tag = "" // until it is complete
	v.version, v.built = version, now
	return h.build(ctx, v, customer, now)
}

// encode sets the body and its tag, which also covers the watches and whether the service is late.
func (v *view) encode(body Body, late bool) error {
	text, err := rest.Encode(body)
	if err != nil {
		return err
	}
	hash := sha256.New()
	_, _ = fmt.Fprint(hash, v.watched, v.problems)
	_, _ = hash.Write(text)
	if late {
		_, _ = hash.Write([]byte(v.probe.Published.String()))
	}
	v.body, v.tag = text, `W/"`+hex.EncodeToString(hash.Sum(nil)[:12])+`"`
	return nil
}

// The states of a sensor.
const (
	stateOK         = "ok"
	stateWarning    = "warning"
	stateCritical   = "critical"
	stateSilent     = "silent"
	stateLate       = "late"
	stateUnreported = "unreported"
)

// stateOf returns the worst state that applies to a sensor with a worst lasting severity.
func stateOf(l incidents.LiveSensor, severity incident.Severity, probe incident.Probe, now time.Time) string {
	switch {
	case severity == incident.Critical:
		return stateCritical
	case l.Silent(probe, now):
		return stateSilent
	case severity != "":
		return stateWarning
	case l.Timestamp == nil:
		return stateUnreported
	case !l.Reports(now):
		return stateLate
	default:
		return stateOK
	}
}
