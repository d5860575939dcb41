package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/reading"
)

// Check is a test of something that nodes or readings depend on. GET /health reports its error.
type Check struct {
	// Name precedes the reason in /health.
	Name string
	// Every is the interval of Run.
	Every time.Duration
	// Clock marks the check of the clock by which an open gateway dates readings.
	Clock bool
	// Fatal marks a check without which nodes cannot use the gateway.
	Fatal bool
	Run   func(ctx context.Context) error
	// Now replaces Run: each GET /health and GET /metrics calls it. It must not wait, and it logs
	// its changes itself.
	Now func() error
}

// NameCheck returns the check that nodes find the gateway by its name; problem returns why
// they may not, or an empty string.
func NameCheck(problem func() string) Check {
	return Check{Name: "name", Now: func() error {
		if text := problem(); text != "" {
			return errors.New(text)
		}
		return nil
	}}
}

// recheckFailing is how soon, at the latest, a check that failed is run again, so that
// /health follows a repair.
const recheckFailing = 15 * time.Second

// lossShown is how long the gateway counts as failing after the outbox had no room for a
// reading: longer than most nodes wait between two.
const lossShown = 5 * time.Minute

// States of a gateway in /health.
const (
	stateHealthy = "healthy"
	// stateDegraded: something needs attention; no reading is lost yet.
	stateDegraded = "degraded"
	// stateFailing: readings are lost, or nodes do not reach the gateway.
	stateFailing = "failing"
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
	// Sources are those of batches.
	Sources []SourceHealth `json:"sources,omitempty"`
}

// Publishing says whether Pub/Sub takes readings.
type Publishing struct {
	Up    bool      `json:"up"` // false until Pub/Sub has taken one: unknown is not up
	Since time.Time `json:"since"`
	Error string    `json:"error,omitzero"` // why Pub/Sub is unavailable or refuses every message
	// Refused counts the readings that Pub/Sub has refused for their content since the start.
	Refused int64 `json:"refused,omitzero"`
}

// OutboxHealth is the state of the outbox.
type OutboxHealth struct {
	Readings int    `json:"readings"`
	Bytes    int64  `json:"bytes"`
	Dropped  int64  `json:"dropped"`        // readings that could not be kept, since the start
	Damaged  int    `json:"damaged"`        // places of the disk that could not be read, since the start
	Error    string `json:"error,omitzero"` // why readings cannot be kept
}

type monitor struct {
	config  *Config
	nodes   *nodeTable
	sender  *sender
	drain   *drain
	log     *slog.Logger
	sources []*source // of batches

	mu   sync.Mutex
	errs map[string]error // of the checks with an interval, by name; nil while a check passes
}

// watch runs a check until the context ends. A change is logged, the same error is not.
func (m *monitor) watch(ctx context.Context, c Check) {
	for {
		err := c.Run(ctx)
		if ctx.Err() != nil {
			return
		}
		m.mu.Lock()
		before := m.errs[c.Name]
		m.errs[c.Name] = err
		m.mu.Unlock()
		switch {
		case err != nil && before == nil:
			m.log.ErrorContext(ctx, "check failed", "check", c.Name, "error", err.Error())
		case err == nil && before != nil:
			m.log.InfoContext(ctx, "check passes again", "check", c.Name)
		}
		next := c.Every
		if err != nil {
			next = min(next, recheckFailing)
		}
		if pause.For(ctx, next) != nil {
			return
		}
	}
}

func (m *monitor) state() (state string, reasons []string) {
	state = stateHealthy
	add := func(worst, reason string) {
		if state != stateFailing {
			state = worst
		}
		reasons = append(reasons, reason)
	}
	down, _, reason := m.sender.uplink.state()
	stats := m.sender.outbox.Stats()
	if reason != "" {
		add(stateDegraded, "publishing: "+reason)
	}
	noRoom := m.sender.noRoom.Load()
	switch {
	case noRoom != 0 && m.sender.clock().Sub(time.Unix(0, noRoom)).Abs() < lossShown: // the clock may be set
		add(stateFailing, "outbox: it has no room, readings are lost")
	case stats.Err != nil && (down || reason != ""):
		add(stateFailing, "outbox: "+stats.Err.Error()) // neither published nor kept
	case stats.Err != nil:
		add(stateDegraded, "outbox: "+stats.Err.Error())
	}
	if stats.Damaged > 0 {
		add(stateDegraded, "outbox: places of the disk cannot be read")
	}
	if n := m.drain.withheldCount(); n > 0 {
		add(stateDegraded, fmt.Sprintf("withheld: %d readings are kept and not published: taken under another enrolment, or while the time was not known", n))
	}
	for _, c := range m.config.Checks {
		err := m.result(c)
		if err == nil {
			continue
		}
		worst := stateDegraded
		if c.Fatal {
			worst = stateFailing
		}
		add(worst, c.Name+": "+err.Error())
	}
	return state, slices.Compact(reasons)
}

// clockProblem returns why the gateway's time may be wrong.
func (m *monitor) clockProblem() error {
	s := m.sender.signer
	if !reading.InCalendar(s.clock()) {
		return errors.New("the clock is not set")
	}
	if s.enrolment != nil {
		if _, ok := s.enrolment.Time(s.boot.ID, s.boot.Uptime()); !ok {
			return errors.New("the API has not sent the time yet")
		}
		return nil
	}
	for _, c := range m.config.Checks {
		if err := m.result(c); c.Clock && err != nil {
			return fmt.Errorf("the clock is wrong: %w", err)
		}
	}
	return nil
}

func (m *monitor) result(c Check) error {
	if c.Now != nil {
		return c.Now()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.errs[c.Name]
}

// health is read by people, by doctor and by monitoring on site.
func (m *monitor) health(w http.ResponseWriter, _ *http.Request) {
	down, since, reason := m.sender.uplink.state()
	stats := m.sender.outbox.Stats()
	status, reasons := m.state()
	h := Health{
		Status: status, Reasons: reasons, Version: m.config.Version, Nodes: m.nodes.count(),
		Publishing: Publishing{
			Up: !down && m.sender.uplink.acknowledged() > 0, Since: reading.TruncateTime(since), Error: reason,
			Refused: m.sender.discarded.Load(),
		},
		Outbox: OutboxHealth{Readings: stats.Pending, Bytes: stats.Bytes, Dropped: m.sender.dropped.Load(), Damaged: stats.Damaged},
	}
	if stats.Err != nil {
		h.Outbox.Error = stats.Err.Error()
	}
	for _, s := range m.sources {
		h.Sources = append(h.Sources, s.health(m.nodes))
	}
	if m.config.Discovery != nil {
		h.Discovery = m.config.Discovery()
	}
	write(w, http.StatusOK, h)
}
