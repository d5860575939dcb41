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

	"coldaisle.dev/shared/push"
)

// world executes a script on the system and on the model, and compares.
type world struct {
	*system
	tb        testing.TB
	model     *model
	prefix    string // of all names: what other scripts left in caches is not ours
	tokens    map[*account]session
	sites     map[*gateway]*site
	open      *site
	data      []*sentData // every message of topic data
	events    []*sentAlert
	sequence  int
	commands  int
	last      string
	thorough  bool // compare everything after each command
	setting   bool // compare nothing yet
	concerned map[string]bool
	actor     *account // whose answers may have changed
	probed    time.Time
	silences  map[int64]bool         // that somebody was told
	looked    map[*account]time.Time // for silences
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
	if want != got {
		w.tb.Errorf("%s is answered %d, want %d", what, got, want)
	}
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
	w.pass(cacheAge)
	w.touch("rooms", "readings", "incidents")
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
	w.pass(cacheAge)
	w.touch("rooms", "incidents")
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
	w.pass(cacheAge)
	w.touch("rooms", "readings", "incidents")
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
	w.pass(cacheAge)
	w.touch("rooms", "readings", "rules", "incidents")
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
	w.pass(cacheAge)
	w.touch("rules", "incidents")
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
	w.pass(cacheAge)
	w.touch("rules", "incidents")
}

func (w *world) unrule(a *account, n []int) {
	r, ok := pick(a.rules, n[1])
	if !ok {
		return
	}
	w.settleFirst(n[0])
	w.model.removeRule(a, r)
	w.expect("deleteRule", http.StatusNoContent, w.call(w.token(a), http.MethodDelete, fmt.Sprintf("/api/v1/rules/%d", r.id), nil, nil))
	w.pass(cacheAge)
	w.touch("rules", "incidents")
}

// ---- Readings

// send has a node send a reading, through an account's gateway, or an open one.
func (w *world) send(n []int) {
	channel, one, g := 0, w.open, (*gateway)(nil)
	if n[0]%5 != 0 { // an account's, if it has a gateway
		if a, ok := w.account(n[0]); ok {
			if found, ok := pick(a.gateways, n[4]); ok {
				channel, one, g = a.channel(), w.sites[found], found
			}
		}
	}
	w.sequence++
	age := choose(ages, n[4])
	if age > 0 { // no two readings of one microsecond
		age += time.Duration(w.sequence) * time.Millisecond
	}
	if holds := w.model.holds[w.node(n[1])]; n[4] == 11 && channel == 0 && len(holds) > 0 { // the first of a hold
		if first := w.clock.Now().Sub(holds[len(holds)-1].from); first < time.Hour && !holds[len(holds)-1].sent {
			age, holds[len(holds)-1].sent = first, true
		}
	}
	r := &reading{
		stream: stream{channel, w.node(n[1])}, id: fmt.Sprint("m", w.sequence), at: w.clock.Now().Add(-age), published: w.clock.Now(), gateway: g,
		values: [2]float64{choose(temperatures, n[2]), choose(humidities, n[3])},
	}
	code, published := one.send(r.node, r.id, r.values, age)
	w.expect("message", http.StatusOK, code)
	for _, m := range published {
		w.data = append(w.data, &sentData{message: m, reading: r})
	}
}

// repeat has a node send its last reading again: the gateway knows it, and publishes it as it was,
// unless it has just started.
func (w *world) repeat(n []int) {
	sent, ok := pick(w.data, len(w.data)-1)
	if !ok || w.clock.Now().Sub(sent.reading.at) > 50*time.Minute || n[0]%2 == 0 && sent.reading.channel != 0 {
		return
	}
	one := w.open
	if sent.reading.gateway != nil {
		one = w.sites[sent.reading.gateway]
	}
	if n[0]%3 == 2 {
		one.restart()
		w.pass(time.Second)
	}
	r := sent.reading
	if !one.started.Before(r.published) { // it does not know it any more: a copy
		r = &reading{stream: r.stream, id: r.id, at: w.clock.Now(), published: w.clock.Now(), values: r.values, gateway: r.gateway}
	}
	code, published := one.send(r.node, r.id, r.values, 0)
	w.expect("repeated message", http.StatusOK, code)
	for _, m := range published {
		w.data = append(w.data, &sentData{message: m, reading: r})
	}
}

func (w *world) restart(n []int) {
	sites := []*site{w.open}
	for _, a := range w.model.accounts {
		for _, g := range a.gateways {
			sites = append(sites, w.sites[g])
		}
	}
	choose(sites, n[0]).restart()
}

func (w *world) pendingData(done func(*sentData) bool) (pending []*sentData) {
	for _, d := range w.data {
		if !done(d) {
			pending = append(pending, d)
		}
	}
	return pending
}

func ingested(d *sentData) bool { return d.ingested }

// detectable: the first signed reading of an open sensor is ingested first, as detect signs it
// only when it judges it.
func (w *world) detectable(d *sentData) bool {
	return !d.detected && (d.ingested || d.reading.channel == 0)
}

func (w *world) ingestOne(n []int) {
	if d, ok := pick(w.pendingData(ingested), n[0]); ok {
		w.ingest(d, n[1])
	}
}

func (w *world) detectOne(n []int) {
	if d, ok := pick(w.pendingData(func(d *sentData) bool { return !w.detectable(d) }), n[0]); ok {
		w.detect(d, n[1])
	}
}

func (w *world) storeOne(n []int) {
	var pending []*sentAlert
	for _, e := range w.events {
		if !e.stored {
			pending = append(pending, e)
		}
	}
	if e, ok := pick(pending, n[0]); ok {
		w.store(e, n[1])
	}
}

// again delivers what was delivered before.
func (w *world) again(n []int) {
	switch n[0] % 3 {
	case 0:
		if d, ok := pick(w.data, n[1]); ok && d.ingested {
			w.ingest(d, n[2])
		}
	case 1:
		if d, ok := pick(w.data, n[1]); ok && d.detected {
			w.detect(d, n[2])
		}
	default:
		if e, ok := pick(w.events, n[1]); ok && e.stored {
			w.store(e, n[2])
		}
	}
}

// parts may be away, or their answer lost.
var parts = []string{"states", "table", "judge", "alerts"}

// fail delivers while a part is away, or its answer is lost.
func (w *world) fail(n []int) {
	name := choose(parts, n[0])
	pending := w.pendingData(ingested)
	if name == "judge" || name == "alerts" {
		pending = w.pendingData(func(d *sentData) bool { return !w.detectable(d) })
	}
	d, ok := pick(pending, n[1])
	if !ok {
		return
	}
	w.away[name] = n[2]%2 == 0
	if name == "judge" || name == "alerts" {
		w.detect(d, n[2])
	} else {
		w.ingest(d, n[2])
	}
	delete(w.away, name)
}

func (w *world) ingest(d *sentData, at int) {
	err := deliver(w.instances[at%2].ingest, w.attempt(d))
	w.touch("readings", "incidents", "rooms")
	w.actor, _, _ = w.model.owner(d.reading.stream)
	switch {
	case push.IsPermanent(err):
		d.ingested = true
		if w.model.ingest(d.reading) {
			w.tb.Errorf("ingest refuses %s of %s: %v", d.reading.id, d.reading.node, err)
		}
	case err != nil && len(w.away) == 0:
		w.tb.Errorf("ingest: %v", err)
	case err != nil && !w.away["states"]: // the transaction is not committed
	default:
		d.ingested = d.ingested || err == nil
		if !w.model.ingest(d.reading) {
			w.tb.Errorf("ingest takes %s of %s", d.reading.id, d.reading.node)
		}
	}
}

func (w *world) attempt(d *sentData) push.Message {
	d.attempts++
	m := d.message
	m.DeliveryAttempt = d.attempts
	return m
}

func (w *world) detect(d *sentData, at int) {
	w.published = nil
	err := deliver(w.instances[at%2].detect, w.attempt(d))
	w.touch("readings", "incidents")
	w.actor, _, _ = w.model.owner(d.reading.stream)
	raised, refused := w.model.exceeded(d.reading)
	switch {
	case push.IsPermanent(err):
		d.detected = true
		if !refused {
			w.tb.Errorf("detect refuses %s of %s: %v", d.reading.id, d.reading.node, err)
		}
		return
	case refused:
		w.tb.Errorf("detect takes %s of %s", d.reading.id, d.reading.node)
		return
	case err != nil && len(w.away) == 0:
		w.tb.Errorf("detect: %v", err)
		return
	case err != nil && !w.away["alerts"]:
		raised = nil
	}
	d.detected = d.detected || err == nil
	if len(raised) != len(w.published) {
		w.tb.Errorf("detect raises %d alerts of %s of %s %v, want %d", len(w.published), d.reading.id, d.reading.node, d.reading.values, len(raised))
		return
	}
	for i, m := range w.published {
		w.events = append(w.events, &sentAlert{message: m, event: raised[i]})
	}
}

func (w *world) store(e *sentAlert, at int) {
	if err := deliver(w.instances[at%2].storealert, e.message); err != nil {
		w.tb.Errorf("storealert: %v", err)
	}
	e.stored = true
	w.actor, _ = w.model.visible(e.event.reading.stream, e.event.reading.at)
	w.model.storeAlert(e.event)
	w.touch("alerts")
}

// drain delivers everything, oldest or newest first, and a probe.
func (w *world) drain(n []int) {
	order := func(of int) int {
		if n[0]%2 == 0 {
			return 0
		}
		return of - 1
	}
	for pending := w.pendingData(ingested); len(pending) > 0; pending = w.pendingData(ingested) {
		w.ingest(pending[order(len(pending))], n[0]/2)
	}
	done := func(d *sentData) bool { return d.detected }
	for pending := w.pendingData(done); len(pending) > 0; pending = w.pendingData(done) {
		w.detect(pending[order(len(pending))], n[0]/2)
	}
	for _, e := range w.events {
		if !e.stored {
			w.store(e, n[0]/2)
		}
	}
	w.probe(n[0])
}

// probe delivers the reading of the probe, which comes each minute.
func (w *world) probe(at int) {
	w.probed = w.clock.Now()
	m := push.Message{ID: "probe", Data: []byte(`{"message_id":"p","node_id":"coldaisle.probe","temperature":1,"humidity":1}`), PublishTime: w.clock.Now()}
	w.published = nil
	for _, to := range []step{w.instances[at%2].ingest, w.instances[at%2].detect} {
		if err := deliver(to, m); err != nil {
			w.tb.Errorf("probe: %v", err)
		}
	}
}

// checkSilences: who is silent has sent nothing for five minutes, and nobody became so while
// the probe was late.
func (w *world) checkSilences(a *account) {
	for _, e := range decode[[]struct {
		ID       int64
		SensorID string `json:"sensor_id"`
		State    string
	}](w.system, w.token(a), "/api/v1/excursions?limit=500&kind=silence") {
		if !w.silences[e.ID] && !w.probed.IsZero() && w.clock.Now().Sub(w.probed) > 2*time.Minute && !w.looked[a].Before(w.probed) {
			w.tb.Errorf("after %q: %s is silent, and the probe is late", w.last, e.SensorID)
		}
		w.silences[e.ID] = true
		if s := a.sensor(e.SensorID); s != nil && e.State == "lasting" {
			newest, heard := w.model.newestOf(a, s)
			if !heard || w.clock.Now().Sub(newest.at) < 5*time.Minute {
				w.tb.Errorf("after %q: %s is silent, and was heard at %s", w.last, e.SensorID, short(newest.at))
			}
		}
	}
	w.looked[a] = w.clock.Now()
}

func (w *world) acknowledge(a *account, n []int) {
	type row struct {
		ID        int64
		Timestamp time.Time
		SensorID  string `json:"sensor_id"`
		AlertType string `json:"alert_type"`
	}
	found, ok := pick(decode[[]row](w.system, w.token(a), "/api/v1/alerts/history?limit=500"), n[1])
	if !ok {
		return
	}
	w.expect("acknowledge", http.StatusOK, w.call(w.token(a), http.MethodPost, fmt.Sprintf("/api/v1/alerts/%d/acknowledge", found.ID), nil, nil))
	for _, other := range w.model.accounts { // nobody else may
		if other != a {
			path := fmt.Sprintf("/api/v1/alerts/%d/acknowledge", found.ID)
			w.expect("acknowledge by another", http.StatusNotFound, w.call(w.token(other), http.MethodPost, path, nil, nil))
		}
	}
	for _, e := range w.model.alerts {
		if e.owner == a && e.reading.node == found.SensorID && e.reading.at.Equal(found.Timestamp) && quantities[e.quantity] == found.AlertType {
			e.known = true
		}
	}
	w.touch("alerts")
}

// ---- What the API answers, as the model's lines

// compare compares the answers to each account: all, or those that a command may have
// changed and, in turn, of another kind.
func (w *world) compare(everything bool) {
	turn := []string{"rooms", "readings", "alerts", "rules", "incidents"}
	for k, a := range w.model.accounts {
		for g, group := range turn {
			// Of one account what may have changed, of the others something in turn.
			mine, other := a == w.actor && w.concerned[group], w.commands%(len(turn)*len(w.model.accounts)) == k*len(turn)+g
			if !everything && !mine && !other {
				continue
			}
			var want, got []string
			switch group {
			case "rooms":
				want, got = w.model.roomLines(a), w.roomLines(a)
			case "readings":
				want, got = w.model.readingLines(a, w.halfway()), w.readingLines(a)
			case "alerts":
				want, got = w.model.alertLines(a), w.alertLines(a)
			case "rules":
				want, got = w.model.ruleLines(a), w.ruleLines(a)
			case "incidents":
				if len(w.pendingData(func(d *sentData) bool { return d.ingested && d.detected })) > 0 {
					continue // they are known once all is judged
				}
				want, got = append(w.model.excursionLines(a), w.model.incidentLines(a)...), w.excursionLines(a)
			}
			if text := differ(want, got); text != "" {
				w.tb.Errorf("after %q, at %s, account %d's %s differ:\n%s", w.last, short(w.clock.Now()), a.index, group, text)
			}
		}
	}
	clear(w.concerned)
}

func (w *world) halfway() (pending []*reading) {
	for _, d := range w.data {
		pending = append(pending, d.reading)
	}
	return pending
}

func (w *world) roomLines(a *account) (lines []string) {
	type answer struct {
		ID   int64
		Name string
	}
	type sensor struct{ ID string }
	for _, r := range decode[[]answer](w.system, w.token(a), fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", a.id)) {
		lines = append(lines, "room "+r.Name)
		for _, s := range decode[[]sensor](w.system, w.token(a), fmt.Sprintf("/api/v1/sensors/list_sensors/%d", r.ID)) {
			lines = append(lines, fmt.Sprintf("sensor %s in %s", s.ID, r.Name))
		}
		for _, other := range w.model.accounts {
			if other != a {
				w.expect("another's room", http.StatusNotFound, w.call(w.token(other), http.MethodGet, fmt.Sprintf("/api/v1/sensors/list_sensors/%d", r.ID), nil, nil))
			}
		}
	}
	return lines
}

type readingAnswer struct {
	NodeID                string `json:"node_id"`
	Timestamp             time.Time
	Temperature, Humidity float64
}

func (w *world) readingLines(a *account) (lines []string) {
	var ids []string
	for n := range 4 {
		ids = append(ids, w.node(n))
	}
	var newest map[string]readingAnswer
	w.expect("multi-sensor", http.StatusOK, w.call(w.token(a), http.MethodPost, "/api/v1/data/multi-sensor", map[string]any{"node_ids": ids}, &newest))
	for _, r := range newest {
		lines = append(lines, fmt.Sprintf("newest %s %s %s %s", r.NodeID, short(r.Timestamp), number(r.Temperature), number(r.Humidity)))
	}
	from, until := start().Add(-3*time.Hour).Format(time.RFC3339), w.clock.Now().Add(time.Minute).Format(time.RFC3339)
	for _, node := range ids {
		path := fmt.Sprintf("/api/v1/data/historical/%s?start_time=%s&end_time=%s", node, from, until)
		var all []readingAnswer
		want := http.StatusNotFound
		if a.sensor(node) != nil {
			want = http.StatusOK
		}
		w.expect("historical", want, w.call(w.token(a), http.MethodGet, path, nil, &all))
		for _, r := range all {
			lines = append(lines, fmt.Sprintf("reading %s %s %s %s", r.NodeID, short(r.Timestamp), number(r.Temperature), number(r.Humidity)))
		}
	}
	return lines
}

func (w *world) alertLines(a *account) (lines []string) {
	type row struct {
		SensorID     string `json:"sensor_id"`
		AlertType    string `json:"alert_type"`
		Message      string
		Timestamp    time.Time
		Acknowledged bool
	}
	active := 0
	for _, e := range decode[[]row](w.system, w.token(a), "/api/v1/alerts/history?limit=500") {
		lines = append(lines, fmt.Sprintf("alert %s %s %s %s acknowledged %t", e.SensorID, e.AlertType, short(e.Timestamp), e.Message, e.Acknowledged && !a.fuzzy))
		if !e.Acknowledged {
			active++
		}
	}
	w.expect("number of active alerts", active, len(decode[[]row](w.system, w.token(a), "/api/v1/alerts/active")))
	return lines
}

func (w *world) ruleLines(a *account) (lines []string) {
	var t struct {
		MaxTemperature float64 `json:"max_temperature"`
		MaxHumidity    float64 `json:"max_humidity"`
	}
	w.expect("thresholds", http.StatusOK, w.call(w.token(a), http.MethodGet, fmt.Sprintf("/api/v1/alerts/thresholds/%d", a.id), nil, &t))
	lines = append(lines, fmt.Sprintf("limits %s %s", number(t.MaxTemperature), number(t.MaxHumidity)))
	type row struct {
		Quantity, Direction, Severity string
		Limit                         float64
		ForS                          float64 `json:"for_s"`
		ClearMargin                   float64 `json:"clear_margin"`
		ClearForS                     float64 `json:"clear_for_s"`
		RoomID                        int64   `json:"room_id"`
	}
	for _, r := range decode[[]row](w.system, w.token(a), "/api/v1/rules") {
		place := "everywhere"
		for _, one := range a.rooms {
			if one.id == r.RoomID {
				place = one.name
			}
		}
		lines = append(lines, fmt.Sprintf("rule %s %s %s for %g back by %s for %g %s %s",
			r.Quantity, r.Direction, number(r.Limit), r.ForS, number(r.ClearMargin), r.ClearForS, r.Severity, place))
	}
	return lines
}

func (w *world) excursionLines(a *account) (lines []string) {
	type row struct {
		SensorID   string  `json:"sensor_id"`
		SensorName *string `json:"sensor_name"`
		Quantity   *string
		Direction  *string
		Resolution *string
		Limit      *float64
		Start      time.Time  `json:"start_time"`
		End        *time.Time `json:"end_time"`
		Peak       *float64
		PeakTime   time.Time `json:"peak_time"`
	}
	for _, e := range decode[[]row](w.system, w.token(a), "/api/v1/excursions?limit=500&kind=threshold") {
		if a.blurred[e.SensorID] || e.SensorName == nil {
			continue
		}
		end := "lasts"
		if e.End != nil {
			end = short(*e.End) + " " + *e.Resolution
		}
		lines = append(lines, fmt.Sprintf("excursion %s %s %s %s from %s %s peak %s at %s",
			e.SensorID, *e.Quantity, *e.Direction, number(*e.Limit), short(e.Start), end, number(*e.Peak), short(e.PeakTime)))
	}
	for _, i := range decode[[]incidentAnswer](w.system, w.token(a), "/api/v1/incidents?limit=500") {
		if i.Cause == "silent" || i.Cause == "sensor" || !w.model.sharp(a, i.RoomID) {
			continue
		}
		w.checkTaken(a, i)
		end := "lasts"
		if i.End != nil {
			end = short(*i.End)
		}
		lines = append(lines, fmt.Sprintf("incident %s %s from %s %s breaking %t of %d", i.RoomName, i.Cause, short(i.Start), end, i.Breaking, i.Excursions))
	}
	w.checkSilences(a) // once what was due is told
	return lines
}
