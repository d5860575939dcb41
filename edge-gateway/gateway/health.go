package gateway

import (
	"net/http"
	"time"

	"coldaisle.dev/shared/reading"
)

// Health is the body of GET /health. The answer is 200 for as long as the
// gateway serves: a restart would not bring Pub/Sub back.
type Health struct {
	Status     string       `json:"status"`            // healthy, degraded or failing
	Reasons    []string     `json:"reasons,omitempty"` // why it is not healthy
	Version    string       `json:"version,omitzero"`
	Nodes      int          `json:"nodes"`
	Publishing Publishing   `json:"publishing"`
	Outbox     OutboxHealth `json:"outbox"`
	Discovery  any          `json:"mdns,omitzero"`
}

// Publishing says whether Pub/Sub takes readings.
type Publishing struct {
	Up    bool      `json:"up"`
	Since time.Time `json:"since"`
	Error string    `json:"error,omitzero"` // what took it down, or why every message is refused
	// Refused counts readings that Pub/Sub refuses for what is in them, since the
	// start.
	Refused int64 `json:"refused,omitzero"`
}

// OutboxHealth says what waits in the outbox.
type OutboxHealth struct {
	Readings int    `json:"readings"`
	Bytes    int64  `json:"bytes"`
	Dropped  int64  `json:"dropped"`        // readings that could not be kept, since the start
	Damaged  int    `json:"damaged"`        // places of the disk that could not be read, since the start
	Error    string `json:"error,omitzero"` // why readings cannot be kept
}

// health is asked by people, by doctor and by monitoring on site.
func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) {
	down, since, reason := g.uplink.state()
	stats := g.outbox.Stats()
	status, reasons := g.state()
	h := Health{
		Status: status, Reasons: reasons,
		Version:    g.config.Version,
		Nodes:      g.nodes.count(),
		Publishing: Publishing{Up: !down, Since: reading.TruncateTime(since), Error: reason, Refused: g.refusals.total()},
		Outbox:     OutboxHealth{Readings: stats.Pending, Bytes: stats.Bytes, Dropped: g.drops.total(), Damaged: stats.Damaged},
	}
	if stats.Err != nil {
		h.Outbox.Error = stats.Err.Error()
	}
	if g.config.Discovery != nil {
		h.Discovery = g.config.Discovery()
	}
	write(w, http.StatusOK, h)
}
