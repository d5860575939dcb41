package system

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Status counts what the system has done.
type Status struct {
	NodesOnline  int64 // simulated nodes that the gateway has registered
	Sent         int64 // readings that the gateway accepted from them
	Stored       int64 // readings stored since the start, of any node
	ActiveAlerts int64
	DeadLetters  int64
}

// Status returns the counts; Stored counts readings with a time since started.
func (s *System) Status(ctx context.Context, started time.Time) (Status, error) {
	var status Status
	if s.Nodes != nil {
		stats := s.Nodes.Stats()
		status.NodesOnline, status.Sent = stats.Registered, stats.Accepted
	}
	if s.Queue != nil {
		status.DeadLetters = s.Queue.Counts().DeadLettered
	}
	err := s.Pool.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM sensor_data.readings WHERE timestamp >= @started),
		       (SELECT count(*) FROM alerts WHERE NOT acknowledged)`,
		pgx.StrictNamedArgs{"started": started},
	).Scan(&status.Stored, &status.ActiveAlerts)
	if err != nil {
		return status, fmt.Errorf("status: %w", err)
	}
	return status, nil
}

// String is the status on one line.
func (s Status) String() string {
	return fmt.Sprintf("simulated nodes %d · readings sent %d · stored %d · active alerts %d · dead letters %d",
		s.NodesOnline, s.Sent, s.Stored, s.ActiveAlerts, s.DeadLetters)
}
