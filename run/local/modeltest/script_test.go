package modeltest

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/push"
)

// world executes a script on the system and on the model, and compares.
type world struct {
	*system
	tb                 testing.TB
	model              *model
	prefix             string // of all names: what other scripts left in caches is not ours
	tokens             map[*account]session
	sites              map[*gateway]*site
	open               *site
	data               []*sentData // every message of topic data
	events             []*sentAlert
	sequence, commands int
	last               string
	thorough           bool // compare everything after each command
	setting            bool // compare nothing yet
	concerned          map[string]bool
	actor              *account // whose answers may have changed
	probed             time.Time
	silences           map[int64]bool         // that somebody was told
	looked             map[*account]time.Time // for silences
}

type session struct {
	token string
	since time.Time
}

type sentData struct {
	message            push.Message
	reading            *reading
	ingested, detected bool // answered
	attempts           int
}

type sentAlert struct {
	message push.Message
	event   *alert
	stored  bool
}

func newWorld(tb testing.TB, s *system, number int) *world {
	tb.Helper()
	s.tb = tb
	s.reset()
	s.client = fmt.Sprintf("10.%d.%d.%d:50000", number>>16&0xff, number>>8&0xff, number&0xff)
	w := &world{
		system: s, tb: tb, model: newModel(start()), prefix: fmt.Sprintf("s%d", number), tokens: map[*account]session{}, sites: map[*gateway]*site{},
		concerned: map[string]bool{}, silences: map[int64]bool{}, looked: map[*account]time.Time{},
	}
	w.open = s.newSite("", nil)
	return w
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	w.clock.Set(w.tb, w.clock.Now().Add(d))
	w.model.now = w.clock.Now()
}

// pick is an element by a number, whatever the number; ok is false where there is none.
func pick[T any](from []T, n int) (element T, ok bool) {
	if len(from) == 0 {
		return element, false
	}
	return from[n%len(from)], true
}

func (w *world) token(a *account) string {
	held := w.tokens[a]
	if held.token == "" || w.clock.Now().Sub(held.since) > 25*time.Minute {
		var answer struct {
			Token string `json:"access_token"`
		}
		credentials := map[string]any{"email": a.email(), "password": "Password1"}
		if code := w.call("", http.MethodPost, "/api/v1/customers/login", credentials, &answer); code != http.StatusOK {
			w.tb.Fatalf("login: %d", code)
		}
		held = session{answer.Token, w.clock.Now()}
		w.tokens[a] = held
	}
	return held.token
}

func (a *account) email() string { return a.name + "@example.com" }

// expect reports an answer of the API that the model does not give.
func (w *world) expect(what string, want, got int) bool {
	w.tb.Helper()
	must.Hold(w.tb, want == got, "%s is answered %d, want %d", what, got, want)
	return want == got
}

// temperatures and humidities of readings: around the limits, and far beyond.
var (
	temperatures = []float64{20, 49.9, 50, 50.1, 53.2, 60}
	humidities   = []float64{40, 50, 50.1, 65}
	ages         = []time.Duration{0, 0, 0, 20 * time.Second, 3 * time.Minute, 11 * time.Minute, 40 * time.Minute}
	pauses       = []time.Duration{time.Second, 30 * time.Second, 2 * time.Minute, 5 * time.Minute, 9 * time.Minute, 12 * time.Minute}
	limits       = []float64{50, 53, 45, 30}
)

// patience is for how long a function or the API may take to answer: far longer than it ever does.
const patience = time.Minute

// deliver delivers a message to a function.
func deliver(to step, m push.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return to(ctx, m)
}

// cacheAge is for how long a change may be unknown to detect.
const cacheAge = 11 * time.Second

func choose[T any](from []T, n int) T { return from[n%len(from)] }

// verb is a command: how often it is drawn, how many numbers it takes, and what it does.
type verb struct {
	weight, args int
	do           func(w *world, n []int)
}

// of gives a command the account that its first number names; where there is none it does nothing.
func of(do func(w *world, a *account, n []int)) func(w *world, n []int) {
	return func(w *world, n []int) {
		if a, ok := w.account(n[0]); ok {
			do(w, a, n)
		}
	}
}

// verbs are the commands. A number that names nothing is taken modulo what there is, so that
// any script can be run, and made shorter.
func verbs() map[string]verb {
	all := map[string]verb{
		"register":  {2, 0, (*world).register},
		"room":      {3, 1, of((*world).room)},
		"sensor":    {6, 3, of((*world).sensor)},
		"move":      {2, 3, (*world).move},
		"delete":    {2, 2, (*world).delete},
		"unroom":    {1, 2, of((*world).unroom)},
		"enrol":     {2, 1, of((*world).enrol)},
		"revoke":    {1, 2, of((*world).revoke)},
		"threshold": {3, 3, of((*world).threshold)},
		"rule":      {2, 7, of((*world).rule)},
		"unrule":    {1, 2, of((*world).unrule)},
		"send":      {30, 5, (*world).send},
		"repeat":    {3, 1, (*world).repeat},
		"restart":   {1, 1, (*world).restart},
		"ingest":    {12, 2, (*world).ingestOne},
		"detect":    {12, 2, (*world).detectOne},
		"store":     {8, 2, (*world).storeOne},
		"again":     {4, 3, (*world).again},
		"fail":      {4, 3, (*world).fail},
		"drain":     {10, 1, (*world).drain},
		"pass":      {8, 1, func(w *world, n []int) { w.pass(choose(pauses, n[0])) }},
		"ack":       {4, 2, of((*world).acknowledge)},
	}
	maps.Copy(all, peopleVerbs())
	return all
}

// run executes a command: a verb and its numbers.
func (w *world) run(line string) {
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return
	}
	v, ok := verbs()[fields[0]]
	if !ok || len(fields) != v.args+1 {
		w.tb.Fatalf("no command: %q", line)
	}
	numbers := make([]int, v.args)
	for i, text := range fields[1:] {
		n, err := strconv.Atoi(text)
		if err != nil {
			w.tb.Fatalf("%q: %v", line, err)
		}
		numbers[i] = n
	}
	w.commands++
	w.last = line
	w.pass(time.Second)
	v.do(w, numbers)
	if !w.setting {
		w.compare(w.thorough)
	}
}

// changed lets time pass until detect knows of a change.
func (w *world) changed(groups ...string) {
	w.pass(cacheAge)
	w.touch(groups...)
}

func (w *world) touch(groups ...string) {
	for _, g := range groups {
		w.concerned[g] = true
	}
}

func (w *world) account(n int) (a *account, ok bool) {
	if a, ok = pick(w.model.accounts, n); ok {
		w.actor = a
	}
	return a, ok
}

func (w *world) register(_ []int) {
	if len(w.model.accounts) == 3 {
		return
	}
	name := fmt.Sprintf("%sa%d", w.prefix, len(w.model.accounts))
	name += strings.Repeat("x", max(0, 6-len(name)))
	var answer struct{ ID int64 }
	account := map[string]any{"email": name + "@example.com", "username": name, "password": "Password1"}
	code := w.call("", http.MethodPost, "/api/v1/customers/register", account, &answer)
	if w.expect("register", http.StatusCreated, code) {
		w.model.register(answer.ID, name)
	}
	w.touch("rooms", "rules")
}

func (w *world) room(a *account, _ []int) {
	if len(a.rooms) == 3 {
		return
	}
	name := fmt.Sprintf("room%d", w.commands)
	var answer struct{ ID int64 }
	if w.expect("new_room", http.StatusCreated, w.call(w.token(a), http.MethodPost, "/api/v1/server_rooms/new_room", map[string]any{"name": name}, &answer)) {
		a.rooms = append(a.rooms, &room{answer.ID, name})
	}
	w.touch("rooms")
}

func (w *world) node(n int) string { return fmt.Sprintf("%sn%d", w.prefix, n%4) }

func (w *world) sensor(a *account, n []int) {
	node := w.node(n[1])
	r, ok := pick(a.rooms, n[2])
	if !ok {
		return
	}
	want := http.StatusBadRequest
	if w.model.create(a, node, r) {
		want = http.StatusCreated
	}
	body := map[string]any{"id": node, "name": node, "type": "T", "room_id": r.id}
	w.expect("new_sensor", want, w.call(w.token(a), http.MethodPost, "/api/v1/sensors/new_sensor", body, nil))
	w.changed("rooms", "readings", "incidents")
}

func (w *world) move(n []int) {
	a, s, ok := w.anySensor(n)
	if !ok {
		return
	}
	r := choose(a.rooms, n[2])
	w.settleFirst(n[0])
	w.model.move(a, s, r)
	body := map[string]any{"name": s.node, "type": "T", "room_id": r.id}
	w.expect("update_sensor", http.StatusOK, w.call(w.token(a), http.MethodPut, "/api/v1/sensors/update_sensor/"+s.node, body, nil))
	w.changed("rooms", "incidents")
}

func (w *world) anySensor(n []int) (*account, *sensor, bool) {
	a, ok := w.account(n[0])
	if !ok {
		return nil, nil, false
	}
	s, ok := pick(a.sensors, n[1])
	return a, s, ok
}

// settleFirst delivers all before a change of what judges, mostly; else what is on its way is
// judged by what is new, which the model does not know.
func (w *world) settleFirst(n int) {
	if n%4 != 3 {
		w.drain([]int{0})
	}
}

// blurHalfway: what detect has judged and ingest will not take any more is in no reading.
func (w *world) blurHalfway(a *account, s *sensor) {
	for _, d := range w.data {
		if r := d.reading; r.detected && !r.ingested && r.node == s.node {
			a.blurred[s.node] = true
		}
	}
}

func (w *world) delete(n []int) {
	a, s, ok := w.anySensor(n)
	if !ok {
		return
	}
	w.settleFirst(n[0])
	w.blurHalfway(a, s)
	w.model.remove(a, s)
	w.expect("delete_sensor", http.StatusNoContent, w.call(w.token(a), http.MethodDelete, "/api/v1/sensors/delete_sensor/"+s.node, nil, nil))
	w.changed("rooms", "readings", "incidents")
}

func (w *world) unroom(a *account, n []int) {
	r, ok := pick(a.rooms, n[1])
	if !ok {
		return
	}
	w.settleFirst(n[0])
	for _, s := range a.sensors {
		if s.room == r {
			w.blurHalfway(a, s)
		}
	}
	w.model.removeRoom(a, r)
	w.expect("delete_room", http.StatusNoContent, w.call(w.token(a), http.MethodDelete, fmt.Sprintf("/api/v1/server_rooms/delete_room/%d", r.id), nil, nil))
	w.changed("rooms", "readings", "rules", "incidents")
}

func (w *world) enrol(a *account, _ []int) {
	if len(a.gateways) == 2 {
		return
	}
	var created struct {
		ID   string `json:"id"`
		Code string `json:"enrolment_code"`
	}
	if !w.expect("createGateway", http.StatusCreated, w.call(w.token(a), http.MethodPost, "/api/v1/gateways", map[string]any{"name": "site"}, &created)) {
		return
	}
	public, private, _ := ed25519.GenerateKey(nil)
	confirmed := map[string]any{"code": created.Code, "public_key": []byte(public), "confirm": true}
	w.expect("enrol", http.StatusOK, w.call("", http.MethodPost, "/api/v1/gateways/enrol", confirmed, nil))
	g := &gateway{id: created.ID}
	a.gateways = append(a.gateways, g)
	w.sites[g] = w.newSite(created.ID, private)
	w.touch("rooms")
}

func (w *world) revoke(a *account, n []int) {
	g, ok := pick(a.gateways, n[1])
	if !ok || !g.revoked.IsZero() {
		return
	}
	g.revoked = w.model.now
	w.expect("revoke", http.StatusNoContent, w.call(w.token(a), http.MethodDelete, "/api/v1/gateways/"+g.id, nil, nil))
	w.pass(cacheAge)
}

func (w *world) threshold(a *account, n []int) {
	w.settleFirst(n[0] + n[1])
	wanted := [2]float64{choose(limits, n[1]), choose(limits, n[2])}
	w.model.setLimits(a, wanted)
	body := map[string]any{"max_temperature": wanted[0], "max_humidity": wanted[1]}
	w.expect("thresholds", http.StatusOK, w.call(w.token(a), http.MethodPost, fmt.Sprintf("/api/v1/alerts/thresholds/%d", a.id), body, nil))
	w.changed("rules", "incidents")
}

func (w *world) rule(a *account, n []int) {
	r := &rule{
		quantity: n[1] % 2, below: n[2]%3 == 0, limit: choose([]float64{49, 30, 52}, n[3]), hold: choose([]time.Duration{0, 2 * time.Minute, 10 * time.Minute}, n[4]),
		margin: choose([]float64{0, 2}, n[5]), clearHold: choose([]time.Duration{0, 3 * time.Minute}, n[6]), severity: choose([]string{"warning", "critical"}, n[3]),
		changed: w.model.now,
	}
	if r.below {
		r.limit = 25
	}
	if r.quantity == 1 && r.below { // a room that dries because it is warm: another truth
		return
	}
	// Of two rules of one kind the narrower judges: the model has one of each.
	if slices.ContainsFunc(a.rules, func(o *rule) bool { return o.quantity == r.quantity && o.below == r.below && o.severity == r.severity }) {
		return
	}
	body := map[string]any{
		"quantity": quantities[r.quantity], "direction": direction(r.below), "limit": r.limit, "for_s": r.hold.Seconds(), "clear_margin": r.margin,
		"clear_for_s": r.clearHold.Seconds(), "severity": r.severity, "enabled": true,
	}
	if one, ok := pick(a.rooms, n[5]); ok && n[6]%3 == 0 {
		r.room, body["room_id"] = one, one.id
	}
	w.settleFirst(n[1] + n[3])
	r.changed = w.model.now
	var answer struct{ ID int64 }
	w.expect("createRule", http.StatusCreated, w.call(w.token(a), http.MethodPost, "/api/v1/rules", body, &answer))
	r.id = answer.ID
	a.rules = append(a.rules, r)
	w.changed("rules", "incidents")
}

func (w *world) unrule(a *account, n []int) {
	r, ok := pick(a.rules, n[1])
	if !ok {
		return
	}
	w.settleFirst(n[0])
	w.model.removeRule(a, r)
	w.expect("deleteRule", http.StatusNoContent, w.call(w.token(a), http.MethodDelete, fmt.Sprintf("/api/v1/rules/%d", r.id), nil, nil))
	w.changed("rules", "incidents")
}
