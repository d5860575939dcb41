package api

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/wire"
)

// TestSilenceIsAnIncident shows contract 11.4.
func TestSilenceIsAnIncident(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.heldSensor(t, "n1", "n2", "never")
	s.judge(t, "n1", s.now().Add(-10*time.Minute), 20)
	s.judge(t, "n2", s.now().Add(-4*time.Minute), 20)
	silent := a.incidents(t, fmt.Sprintf("?kind=silence&room_id=%d", room))
	if len(silent) != 1 || silent[0].SensorID != "n1" || !strings.HasPrefix(silent[0].Reason, "No reading for more than 10 min") {
		t.Fatalf("%+v", silent)
	}
	if left := a.incidents(t, "?state=resolved"); len(left) != 0 {
		t.Errorf("resolved: %+v", left)
	}
	for _, body := range []string{fmt.Sprintf(`{"ids":[%q]}`, silent[0].ID), fmt.Sprintf(`{"room_id":%d,"kind":"silence"}`, room)} {
		if seen := get[[]shownIncident](t, a, http.MethodPost, "/api/v1/incidents/acknowledge", body); len(seen) != 1 || !seen[0].Acknowledged {
			t.Errorf("%s: %+v", body, seen)
		}
	}
	if detail := get[shownIncident](t, a, http.MethodGet, "/api/v1/incidents/"+silent[0].ID, ""); len(detail.Timeline) != 2 {
		t.Errorf("%+v", detail)
	}
	s.judge(t, "n1", s.now(), 20)
	a.call(t, a.token, http.MethodGet, "/api/v1/incidents/"+silent[0].ID, "").is(t, http.StatusNotFound)
}

// silentGateway has the customer's gateway send readings of so many nodes at a time and
// then nothing more, and reports it as seen then.
func (s *testAPI) silentGateway(tb testing.TB, a *testCustomer, at time.Time, nodes ...string) (gateway string) {
	tb.Helper()
	created, code, err := s.store.CreateGateway(tb.Context(), a.id, "Cellar")
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
	list := func(query string) []shownIncident { return a.incidents(t, "?kind=silence"+query) }
	one := list("")
	if len(one) != 1 || len(one[0].Members) != 3 || one[0].Reason != "Gateway Cellar alive, no reading from its 3 nodes for more than 10 min" {
		t.Fatalf("%+v", one)
	}
	for query, want := range map[string]int{"&sensor_id=n2": 1, "&sensor_id=n3": 0, fmt.Sprintf("&room_id=%d", room): 1, "&room_id=99": 0} {
		if got := list(query); len(got) != want {
			t.Errorf("%s: %+v", query, got)
		}
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
		if got := list(""); len(got) != 1 || got[0].Reason != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	seen := get[[]shownIncident](t, a, http.MethodPost, "/api/v1/incidents/acknowledge", fmt.Sprintf(`{"ids":[%q]}`, one[0].Members[1].ID))
	if len(seen) != 1 || seen[0].Acknowledged || seen[0].Members[0].Acknowledged || !seen[0].Members[1].Acknowledged {
		t.Errorf("one member acknowledged: %+v", seen)
	}
	seen = get[[]shownIncident](t, a, http.MethodPost, "/api/v1/incidents/acknowledge", fmt.Sprintf(`{"ids":[%q]}`, one[0].ID))
	if len(seen) != 1 || !seen[0].Acknowledged || !seen[0].Members[2].Acknowledged {
		t.Errorf("acknowledged: %+v", seen)
	}
	if detail := get[shownIncident](t, a, http.MethodGet, "/api/v1/incidents/"+one[0].Members[0].ID, ""); detail.ID != one[0].ID {
		t.Errorf("a member's id gives %+v", detail)
	}
	// One node sends again: the others are silent each, as acknowledged as before.
	r := reading.Reading{Channel: reading.Channel(a.id), NodeID: "n2", MessageID: "m2", Time: reading.TruncateTime(s.now()), Temperature: 20, Humidity: 40}
	must.Do(t, s.store.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r, GatewayID: gateway}}))
	s.report(t, gateway, s.now(), wire.StatusNode{NodeID: "n1", LastHeartbeat: s.now()})
	two := list("")
	if len(two) != 2 || !two[0].Acknowledged || !two[1].Acknowledged || two[0].GroupID != two[1].GroupID || two[0].GroupID != two[0].ID {
		t.Errorf("%+v", two)
	}
	reasons := []string{two[0].Reason, two[1].Reason}
	slices.Sort(reasons)
	want := []string{"No reading for more than 10 min; its gateway does not hear it", "No reading for more than 10 min; the node is alive and sends nothing"}
	must.Equal(t, "", want, reasons)
	// The service itself is late: nobody is blamed.
	must.Do(t, s.store.KeepProbe(t.Context(), s.now().Add(-5*time.Minute), s.now().Add(-5*time.Minute)))
	if late := list(""); len(late) != 0 {
		t.Errorf("while the probe is late: %+v", late)
	}
}
