package system_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/edge-gateway/nodesim/site"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/tooltest"
)

// TestFanOfABMC lets the fan of one machine fail, in a room that only BMCs measure, through
// Telegraf's door of the gateway: people are told once, of that machine.
func TestFanOfABMC(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	address := pgtest.URL(t)
	s := start(t, func(o *system.Options) { o.DatabaseURL = address })
	owner := customer(t, s, "operator")
	made := site.New(site.Options{Seed: 3, Rooms: 1, PerRoom: 4})
	var bmcs []string
	for _, place := range made.Places() {
		bmcs = append(bmcs, place.Node)
	}
	must.Do(t, owner.CreateRoom(t.Context(), "Vault", bmcs))
	owner.do(http.MethodPost, fmt.Sprintf("/api/v1/alerts/thresholds/%d", owner.ID), `{"max_temperature":32}`, http.StatusOK)
	must.Do(t, s.Stop())
	live(t, address, func(t *testing.T, d *day, begin time.Time) {
		t.Helper()
		failing := fault.Fault{
			Kind: fault.Cooling, Room: "room1", Node: bmcs[2], Start: begin.Add(time.Hour), End: begin.Add(2 * time.Hour), Peak: 16, Constant: 5 * time.Minute,
		}
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Minute)
		defer cancel()
		gate, wait := d.gateway(ctx, gateway.Config{Batches: gateway.SourcesFile{Sources: []gateway.Source{{Name: "telegraf", Networks: []string{"192.168.7.9"}}}}})
		for ; ctx.Err() == nil; time.Sleep(30 * time.Second) {
			type metric struct {
				Name      string             `json:"name"`
				Tags      map[string]string  `json:"tags"`
				Fields    map[string]float64 `json:"fields"`
				Timestamp int64              `json:"timestamp"`
			}
			var batch struct {
				Metrics []metric `json:"metrics"`
			}
			for i, bmc := range bmcs {
				celsius := made.Measure(i, time.Now(), fault.Of([]fault.Fault{failing}, "room1", bmc)).Temperature
				batch.Metrics = append(batch.Metrics, metric{
					"redfish_thermal_temperatures", map[string]string{"node_id": bmc, "name": "Inlet Temp"}, map[string]float64{"reading_celsius": celsius}, time.Now().UnixMilli(),
				})
			}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/telegraf", bytes.NewReader(must.Get(json.Marshal(batch))(t)))
			request.RemoteAddr = "192.168.7.9:50123"
			answer := httptest.NewRecorder()
			gate.ServeHTTP(answer, request)
			must.Equal(t, answer.Body.String(), http.StatusAccepted, answer.Code)
		}
		wait()
		all := must.Get(incidents.New(store.New(d.pool)).Incidents(t.Context(), owner.ID, incidents.IncidentQuery{PageRequest: store.PageRequest{Limit: 9}}, time.Now()))(t).Items
		told := d.told(t)
		if len(all) != 1 || len(told) != 1 || told[0].Cause != incident.TooHot || told[0].Calls != 2 || !told[0].Actual ||
			!strings.HasPrefix(all[0].Worst.Reason, "Temperature above 32.0 °C") || all[0].Worst.NodeID != bmcs[2] || !told[0].of(sownFault{"Vault", failing}) {
			t.Errorf("told %+v, %+v", told, all)
		}
	})
}
