// Package alerting has the operations on alerts and the thresholds that raise them, on
// incidents and their excursions, on the rules that make them, and on the maintenance
// windows that silence them.
package alerting

import (
	"context"
	"log/slog"
	"time"

	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// Handlers answer the operations.
type Handlers struct {
	DB        *store.DB
	Readings  readings.Reader
	Retrainer interface {
		StartDue(ctx context.Context, customers ...int64)
	}
	Drills DrillPublisher
	Clock  func() time.Time
	Log    *slog.Logger

	rest     *rest.API
	hub      *hub
	previews *rest.Turns // each occupies a core, and the memory of a sensor's readings
}

// Register adds the operations.
func (h *Handlers) Register(r *rest.API) {
	h.rest, h.previews = r, rest.NewTurns(1)
	h.hub = newHub(incidents.New(h.DB).ListenChanges, h.Log)
	h.registerAlerts(r)
	h.registerThresholds(r)
	h.registerIncidents(r)
	h.registerExcursions(r)
	h.registerChanges(r)
	h.registerRules(r)
	h.registerMaintenance(r)
	h.registerDrills(r)
}

// Run wakes the requests that wait for changes, until ctx ends; then they answer.
func (h *Handlers) Run(ctx context.Context) { h.hub.run(ctx) }
