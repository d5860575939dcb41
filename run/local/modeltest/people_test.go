package modeltest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"coldaisle.dev/shared/push"
)

// What people do with incidents, persons and API keys, and who may do it.

var roles = []string{"viewer", "operator", "admin", "owner"}

// operations are one of each least role. None of them changes anything.
var operations = []struct {
	role, method, path string
	body               any
	keys               string // what a key needs: read, write, or nothing helps
}{
	{"viewer", http.MethodGet, "/api/v1/excursions", nil, "read"},
	{"operator", http.MethodPost, "/api/v1/alerts/999999999/acknowledge", nil, "write"},
	{"admin", http.MethodDelete, "/api/v1/rules/999999999", nil, "write"},
	{"admin", http.MethodDelete, "/api/v1/gateways/gw-none", nil, "none"},
	{"owner", http.MethodDelete, "/api/v1/persons/999999999", nil, "none"},
}

func peopleVerbs() map[string]verb {
	return map[string]verb{
		"take":     {4, 2, of(func(w *world, a *account, n []int) { w.act(a, n[1], "take") })},
		"give":     {2, 2, of(func(w *world, a *account, n []int) { w.act(a, n[1], "give_back") })},
		"person":   {1, 2, of((*world).person)},
		"role":     {1, 3, (*world).role},
		"unperson": {1, 2, (*world).unperson},
		"may":      {3, 3, (*world).may},
		"key":      {1, 3, of((*world).key)},
		"unkey":    {1, 2, of((*world).unkey)},
		"use":      {3, 3, of((*world).use)},
		"together": {3, 2, (*world).together},
	}
}

type incidentAnswer struct {
	ID           int64
	RoomID       int64  `json:"room_id"`
	RoomName     string `json:"room_name"`
	Cause, State string
	Breaking     bool
	Start        time.Time  `json:"start_time"`
	End          *time.Time `json:"end_time"`
	Excursions   int
}

// act takes an incident that lasts, or gives it back.
func (w *world) act(a *account, n int, action string) {
	w.drain([]int{0})
	lasting := decode[[]incidentAnswer](w.system, w.token(a), "/api/v1/incidents?state=lasting")
	i, ok := pick(lasting, n)
	if !ok {
		return
	}
	path := fmt.Sprintf("/api/v1/incidents/%d/actions", i.ID)
	for _, other := range w.model.accounts {
		if other != a {
			w.expect("another's incident", http.StatusNotFound, w.call(w.token(other), http.MethodPost, path, map[string]any{"action": action}, nil))
		}
	}
	want := http.StatusOK
	if action == "give_back" && i.State == "open" {
		want = http.StatusConflict
	}
	w.expect(action, want, w.call(w.token(a), http.MethodPost, path, map[string]any{"action": action}, nil))
	if want == http.StatusOK {
		w.model.act(a, i.RoomID, i.Cause, action == "take" && i.State == "open", action == "take")
	}
	w.touch("alerts", "incidents")
}

// act takes the incident of a room and cause, and with it, the first time, acknowledges the
// alerts of the thresholds' excursions that it has.
func (m *model) act(a *account, room int64, cause string, first, taken bool) {
	a.takes = slices.DeleteFunc(a.takes, func(t take) bool { return t.room == room && t.cause == cause })
	if !taken {
		return
	}
	a.takes = append(a.takes, take{room, cause, m.now, m.parts(a, room, cause)})
	if !first {
		return
	}
	for _, s := range a.sensors {
		a.watched[s.node] = true
	}
	i, ok := m.lasting(a, room, cause)
	if !ok {
		a.fuzzy = true // it is blurred: what it has is not known
		return
	}
	for _, e := range m.all(a) {
		if e.room != i.room || e.cause() != cause || e.rule.id >= 0 || e.start.Before(i.start) {
			continue
		}
		for _, record := range m.alerts {
			at := record.reading.at
			if record.owner == a && record.reading.node == e.node && record.quantity == e.rule.quantity && !at.Before(e.start) && (e.lasting || !at.After(e.end)) {
				record.known = true
			}
		}
	}
}

func (m *model) lasting(a *account, room int64, cause string) (incident, bool) {
	for _, i := range m.incidents(a) {
		if m.sharp(a, room) && i.room.id == room && i.cause == cause && !i.over(m.now) {
			return i, true
		}
	}
	return incident{}, false
}

// parts are the excursions of an incident and how bad they are. While they stay as they are, it does not call again.
func (m *model) parts(a *account, room int64, cause string) string {
	var parts []string
	for _, e := range m.all(a) {
		if e.room.id == room && e.cause() == cause {
			parts = append(parts, fmt.Sprint(e.node, e.rule.id, e.start, e.peak))
		}
	}
	return strings.Join(parts, "\n")
}

// checkTaken holds who has an incident to who took it.
func (w *world) checkTaken(a *account, i incidentAnswer) {
	at := slices.IndexFunc(a.takes, func(t take) bool { return t.room == i.RoomID && t.cause == i.Cause })
	switch {
	case i.State == "taken" && at < 0:
		w.tb.Errorf("after %q: nobody took incident %d, %s in %s", w.last, i.ID, i.Cause, i.RoomName)
	case i.State == "open" && at >= 0 && len(a.blurred) == 0 && !i.Start.After(a.takes[at].at) && w.model.parts(a, i.RoomID, i.Cause) == a.takes[at].parts:
		w.tb.Errorf("after %q: incident %d, %s in %s, is open again, and is as it was when it was taken at %s",
			w.last, i.ID, i.Cause, i.RoomName, short(a.takes[at].at))
	case i.State == "open" && at >= 0: // it calls again
		a.takes = slices.Delete(a.takes, at, at+1)
	}
}

func (w *world) person(a *account, n []int) {
	if len(a.persons) == 3 {
		return
	}
	role := choose(roles, n[1])
	p := &person{email: fmt.Sprintf("%sp%d@example.com", a.name, w.commands), role: role}
	var invited struct{ Code string }
	invitation := map[string]any{"email": p.email, "role": role}
	if !w.expect("invite", http.StatusCreated, w.call(w.token(a), http.MethodPost, "/api/v1/invitations", invitation, &invited)) {
		return
	}
	body := map[string]any{"code": invited.Code, "name": "Ana", "password": "Password1"}
	w.expect("accept", http.StatusOK, w.call("", http.MethodPost, "/api/v1/invitations/accept", body, nil))
	w.expect("accept again", http.StatusNotFound, w.call("", http.MethodPost, "/api/v1/invitations/accept", body, nil))
	for _, one := range decode[[]struct {
		ID    int64
		Email string
	}](w.system, w.token(a), "/api/v1/persons") {
		if one.Email == p.email {
			p.id = one.ID
		}
	}
	w.login(p)
	a.persons = append(a.persons, p)
}

func (w *world) login(p *person) {
	var answer struct {
		Token string `json:"access_token"`
	}
	code := w.call("", http.MethodPost, "/api/v1/customers/login", map[string]any{"email": p.email, "password": "Password1"}, &answer)
	if p.removed {
		w.expect("login of a removed person", http.StatusUnauthorized, code)
		return
	}
	w.expect("login", http.StatusOK, code)
	p.token, p.since = answer.Token, w.clock.Now()
}

func (w *world) anyPerson(n []int) (*account, *person, bool) {
	a, ok := w.account(n[0])
	if !ok {
		return nil, nil, false
	}
	p, ok := pick(a.persons, n[1])
	return a, p, ok
}

func (w *world) role(n []int) {
	a, p, ok := w.anyPerson(n)
	if !ok || p.removed {
		return
	}
	role := choose(roles, n[2])
	w.expect("role", http.StatusOK, w.call(w.token(a), http.MethodPatch, fmt.Sprintf("/api/v1/persons/%d", p.id), map[string]any{"role": role}, nil))
	if role != p.role {
		w.expect("a token of before", http.StatusUnauthorized, w.call(p.token, http.MethodGet, "/api/v1/excursions", nil, nil))
		p.role = role
		w.login(p)
	}
}

func (w *world) unperson(n []int) {
	a, p, ok := w.anyPerson(n)
	if !ok || p.removed {
		return
	}
	w.expect("remove", http.StatusOK, w.call(w.token(a), http.MethodDelete, fmt.Sprintf("/api/v1/persons/%d", p.id), nil, nil))
	p.removed = true
	w.login(p)
}

// may has a person try an operation.
func (w *world) may(n []int) {
	_, p, ok := w.anyPerson(n)
	if !ok {
		return
	}
	if !p.removed && w.clock.Now().Sub(p.since) > 25*time.Minute {
		w.login(p)
	}
	o := choose(operations, n[2])
	code := w.call(p.token, o.method, o.path, o.body, nil)
	switch {
	case p.removed:
		w.expect("a removed person", http.StatusUnauthorized, code)
	case slices.Index(roles, p.role) < slices.Index(roles, o.role):
		w.expect(p.role+" "+o.path, http.StatusForbidden, code)
	case code != http.StatusOK && code != http.StatusNotFound:
		w.tb.Errorf("%s: %s is answered %d", p.role, o.path, code)
	}
}

func (w *world) key(a *account, n []int) {
	if len(a.keys) == 3 {
		return
	}
	k := &key{write: n[1]%2 == 0}
	body := map[string]any{"name": "k", "scope": map[bool]string{true: "write", false: "read"}[k.write]}
	if r, ok := pick(a.rooms, n[2]); ok && n[2]%2 == 0 {
		k.room, body["room_ids"] = r, []int64{r.id}
	}
	var answer struct {
		ID  int64
		Key string
	}
	w.expect("createAPIKey", http.StatusCreated, w.call(w.token(a), http.MethodPost, "/api/v1/api-keys", body, &answer))
	k.id, k.text = answer.ID, answer.Key
	a.keys = append(a.keys, k)
}

func (w *world) unkey(a *account, n []int) {
	if k, ok := pick(a.keys, n[1]); ok && !k.revoked {
		w.expect("revokeAPIKey", http.StatusNoContent, w.call(w.token(a), http.MethodDelete, fmt.Sprintf("/api/v1/api-keys/%d", k.id), nil, nil))
		k.revoked = true
	}
}

// use has a key try an operation, and read what it may see.
func (w *world) use(a *account, n []int) {
	k, ok := pick(a.keys, n[1])
	if !ok {
		return
	}
	o := choose(operations, n[2])
	code := w.call(k.text, o.method, o.path, o.body, nil)
	switch {
	case k.revoked:
		w.expect("a revoked key", http.StatusUnauthorized, code)
		return
	case o.keys == "none" || o.keys == "write" && !k.write:
		w.expect("a key: "+o.path, http.StatusForbidden, code)
	case code == http.StatusUnauthorized, code == http.StatusForbidden && (k.room == nil || o.role != "admin"):
		w.tb.Errorf("a key: %s is answered %d", o.path, code)
	}
	for _, s := range a.sensors {
		want := http.StatusNotFound
		if k.room == nil || s.room == k.room {
			want = http.StatusOK
		}
		w.expect("a key of some rooms: sensor "+s.node, want, w.call(k.text, http.MethodGet, "/api/v1/sensors/sensor/"+s.node, nil, nil))
	}
}

// together has a node send a burst and delivers everything at once, each message to both instances and to both
// functions, as copies may be. What comes of it is what comes of one after the other.
func (w *world) together(n []int) {
	for k := range 3 {
		w.send([]int{n[0], n[1], n[0] + n[1] + k, 0, 0})
		w.pass(time.Second)
	}
	w.published = nil
	var running sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var mu sync.Mutex
	var errs []error
	try := func(to step, m push.Message) {
		running.Go(func() {
			if err := to(ctx, m); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("%s: %w", m.Data, err))
			}
		})
	}
	wait := func() {
		running.Wait()
		for _, err := range errs {
			w.tb.Errorf("together: %v", err)
		}
		errs = nil
	}
	deliver := func(to step, d *sentData) {
		m := w.attempt(d)
		for range 1 + n[1]%2 {
			try(to, m)
		}
	}
	var ready []*sentData // what neither is refused nor signs its sensor, of which the order matters
	for _, d := range w.data {
		if _, of, _ := w.model.owner(d.reading.stream); d.reading.gateway == nil || d.reading.gateway.revoked.IsZero() && (of == nil || !of.signed.IsZero()) {
			if !d.ingested && !d.detected {
				ready = append(ready, d)
			}
		}
	}
	var raised []*alert
	for k, d := range ready {
		deliver(w.instances[k%2].ingest, d)
		deliver(w.instances[(k+n[0])%2].detect, d)
		w.model.ingest(d.reading)
		events, _ := w.model.exceeded(d.reading)
		for range 1 + n[1]%2 {
			raised = append(raised, events...)
		}
		d.ingested, d.detected = true, true
	}
	wait()
	if len(raised) != len(w.published) {
		w.tb.Errorf("together: %d alerts are raised, want %d", len(w.published), len(raised))
		return
	}
	for _, m := range w.published { // they are the same, in whatever order
		try(w.instances[0].storealert, m)
	}
	wait()
	for _, event := range raised {
		w.model.storeAlert(event)
	}
	w.probe(n[0])
	w.touch("readings", "alerts", "incidents", "rooms")
}
