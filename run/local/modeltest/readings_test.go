package modeltest

import (
	"fmt"
	"net/http"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/push"
)

// How readings and alerts are sent and delivered.

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

// detectable: the first signed reading of an open sensor is ingested first, as detect signs it only when it judges it.
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
		must.Hold(w.tb, !w.model.ingest(d.reading), "ingest refuses %s of %s: %v", d.reading.id, d.reading.node, err)
	case err != nil && len(w.away) == 0:
		w.tb.Errorf("ingest: %v", err)
	case err != nil && !w.away["states"]: // the transaction is not committed
	default:
		d.ingested = d.ingested || err == nil
		must.Hold(w.tb, w.model.ingest(d.reading), "ingest takes %s of %s", d.reading.id, d.reading.node)
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
		must.Hold(w.tb, refused, "detect refuses %s of %s: %v", d.reading.id, d.reading.node, err)
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
	err := deliver(w.instances[at%2].storealert, e.message)
	must.Hold(w.tb, err == nil, "storealert: %v", err)
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
		err := deliver(to, m)
		must.Hold(w.tb, err == nil, "probe: %v", err)
	}
}

// checkSilences: who is silent has sent nothing for five minutes, and nobody became so while the probe was late.
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
