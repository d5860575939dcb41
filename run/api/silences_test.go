package api

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/wire"
)

// TestSilenceIsAnIncident shows contract 11.4: it begins, and it clears with the next reading.
func TestSilenceIsAnIncident(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.heldSensor(t, "n1", "n2", "never")
	s.judge(t, "n1", s.now().Add(-10*time.Minute), 20)
	s.judge(t, "n2", s.now().Add(-4*time.Minute), 20)
	silent := a.incidents(t, fmt.Sprintf("?cause=silent&room_id=%d", room))
	if len(silent) != 1 || silent[0].Worst.SensorID != "n1" || !strings.HasPrefix(silent[0].Worst.Reason, "No reading for more than 10 min") || silent[0].Excursions != 1 {
		t.Fatalf("%+v", silent)
	}
	s.judge(t, "n1", s.now(), 20)
	if still := a.incidents(t, ""); len(still) != 1 || still[0].ID != silent[0].ID || still[0].State != "open" || still[0].Breaking {
		t.Errorf("heard again: %+v", still)
	}
}

// silentGateway has the customer's gateway send readings of so many nodes at a time and
// then nothing more, and reports it as seen then.
func (s *testAPI) silentGateway(tb testing.TB, a *testCustomer, at time.Time, nodes ...string) (gateway string) {
	tb.Helper()
	created, code, err := s.store.CreateGateway(tb.Context(), a.id, a.person, "Cellar")
	must.Do(tb, err)
	must.Get(s.store.EnrolGateway(tb.Context(), code, bytes.Repeat([]byte{1}, ed25519.PublicKeySize)))(tb)
	for _, node := range nodes {
		r := reading.Reading{Channel: reading.Channel(a.id), NodeID: node, MessageID: "m", Time: reading.TruncateTime(at), Temperature: 20, Humidity: 40}
		must.Do(tb, s.store.UpdateNodeStates(tb.Context(), []pipeline.NodeReading{{Reading: r, GatewayID: created.ID}}))
	}
	return created.ID
}

// report has the gateway say that it is there, at a time, and what it knows of a node.
func (s *testAPI) report(tb testing.TB, gateway string, seen time.Time, node wire.StatusNode) {
	tb.Helper()
	status := wire.StatusRequest{GatewayID: gateway, BootID: "b", Sequence: time.Now().UnixNano(), Nodes: []wire.StatusNode{node}}
	must.Get(s.store.RecordGatewayStatus(tb.Context(), status, time.Time{}))(tb)
	s.execute(tb, `UPDATE gateways SET last_seen = $1 WHERE id = $2`, seen, gateway)
}

// TestSilentGatewayIsOneIncident shows contract 11.4.
func TestSilentGatewayIsOneIncident(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.heldSensor(t, "n1", "n2")
	cut := s.now().Add(-10 * time.Minute)
	gateway := s.silentGateway(t, a, cut, "n1", "n2", "discovered")
	list := func(query string) []shownIncident { return a.incidents(t, "?cause=silent"+query) }
	one := list("")
	must.Equal(t, "silent", 1, len(one))
	must.Equal(t, "excursions", 3, one[0].Excursions)
	must.Equal(t, "reason", "Gateway Cellar alive, no reading from its 3 nodes for more than 10 min", one[0].Worst.Reason)
	for query, want := range map[string]int{"&sensor_id=n2": 1, "&sensor_id=n3": 0, fmt.Sprintf("&room_id=%d", room): 1, "&room_id=99": 0} {
		must.Equal(t, query, want, len(list(query)))
	}
	for name, c := range map[string]struct {
		seen time.Time
		node wire.StatusNode
		want string
	}{
		"silent": {s.now().Add(-4 * time.Minute), wire.StatusNode{NodeID: "n1"}, "Gateway Cellar silent, no reading from its 3 nodes for more than 10 min"},
		"uplink": {s.now(), wire.StatusNode{NodeID: "n1", LastReading: s.now()}, "Gateway Cellar alive, uplink down, no reading from its 3 nodes for more than 10 min"},
	} {
		s.report(t, gateway, c.seen, c.node)
		must.Equal(t, name, c.want, list("")[0].Worst.Reason)
	}
	// A key of one of its rooms reads it, and cannot take what is of others, too.
	limited := *a
	limited.token = a.key(t, fmt.Sprintf(`"scope":"write","room_ids":[%d]`, room)).text
	must.Equal(t, "by a key", one[0].ID, limited.incidents(t, "")[0].ID)
	s.call(t, limited.token, http.MethodPost, fmt.Sprintf("%s%d/actions", incidentsPath, one[0].ID), `{"action":"take"}`).
		says(t, 403, "The incident concerns rooms that the key does not cover")
	// One node sends again: the others are still silent with their gateway.
	r := reading.Reading{Channel: reading.Channel(a.id), NodeID: "n2", MessageID: "m2", Time: reading.TruncateTime(s.now()), Temperature: 20, Humidity: 40}
	must.Do(t, s.store.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r, GatewayID: gateway}}))
	s.report(t, gateway, s.now(), wire.StatusNode{NodeID: "n1", LastHeartbeat: s.now()})
	if two := list(""); len(two) != 1 || two[0].ID != one[0].ID || two[0].Now.Sensors != 2 {
		t.Errorf("%+v", two)
	}
	reasons := map[string]string{}
	for _, e := range get[[]shownExcursion](t, a, http.MethodGet, "/api/v1/excursions?kind=silence", "") {
		reasons[e.SensorID] = e.Reason
	}
	must.Equal(t, "", map[string]string{
		"n1": "No reading for more than 10 min; the node is alive and sends nothing", "discovered": "No reading for more than 10 min; its gateway does not hear it",
		"n2": "No reading for 10 min",
	}, reasons)
	// The service itself is late: nobody else is blamed.
	s.execute(t, `DELETE FROM room_incidents`)
	s.execute(t, `DELETE FROM excursions`)
	must.Do(t, s.store.RecordProbe(t.Context(), s.now().Add(-5*time.Minute), s.now().Add(-5*time.Minute)))
	must.Equal(t, "while the probe is late", 0, len(list("")))
}
