package system_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/edge-gateway/nodesim/site"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// TestFanOfABMC lets the fan of one machine fail, in a room that only BMCs measure, through
// Telegraf's door of the gateway: people are told once, of that machine.
func TestFanOfABMC(t *testing.T) {
	t.Parallel()
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
	pooled := must.Get(pgxpool.ParseConfig(address))(t)
	pooled.HealthCheckPeriod = 24 * time.Hour // connections belong to the bubble
	pool := must.Get(pgxpool.NewWithConfig(t.Context(), pooled))(t)
	d := newDay(pool)
	d.tb = t
	synctest.Test(t, func(t *testing.T) {
		defer pool.Close()
		begin := time.Date(2026, 3, 2, 8, 7, 0, 0, time.UTC)
		time.Sleep(time.Until(begin))
		must.Get(pool.Exec(t.Context(), `
			UPDATE open_holds SET held_from = '-infinity';
			UPDATE sensors SET placed_at = '2000-01-01';
			UPDATE alert_thresholds SET temperature_changed_at = NULL;
			DELETE FROM probe`))(t)
		failing := fault.Fault{
			Kind: fault.Cooling, Room: "room1", Node: bmcs[2], Start: begin.Add(time.Hour), End: begin.Add(2 * time.Hour), Peak: 16, Constant: 5 * time.Minute,
		}
		kept := must.Get(outbox.Open(t.TempDir(), outbox.Options{Retain: gateway.OutboxRetention, Clock: time.Now}))(t)
		config := gateway.Config{Batches: gateway.SourcesFile{Sources: []gateway.Source{{Name: "telegraf", Networks: []string{"192.168.7.9"}}}}}
		gate := gateway.New(config, gateway.PublishFunc(d.publish), kept, time.Now, logging.Discard())
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Minute)
		defer cancel()
		var running sync.WaitGroup
		running.Go(func() { _ = gate.Run(ctx) })
		running.Go(func() { d.probe(ctx) })
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
		running.Wait()
		must.Do(t, kept.Close())
		all := must.Get(incidents.New(store.New(pool)).Incidents(t.Context(), owner.ID, incidents.IncidentQuery{Part: store.Part{Limit: 9}}, time.Now()))(t).Items
		told := d.told(t)
		if len(all) != 1 || len(told) != 1 || told[0].Cause != incident.TooHot || told[0].Calls != 1 || !told[0].Actual ||
			!strings.HasPrefix(all[0].Worst.Reason, "Temperature above 32.0 °C") || all[0].Worst.NodeID != bmcs[2] || !told[0].of(sownFault{"Vault", failing}) {
			t.Errorf("told %+v, %+v", told, all)
		}
	})
}
