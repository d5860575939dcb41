package system

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Status says on one line what the system has done: the simulated nodes and
// their readings that the gateway accepted, the readings of any node stored with a time since
// started, the active alert records and the dead letters; at first, how much of the past is sent.
func (s *System) Status(ctx context.Context, started time.Time) (string, error) {
	if arriving := s.arriving(); arriving != "" {
		return arriving, nil
	}
	var nodes, sent, stored, alerts, deadLetters int64
	if s.Nodes != nil {
		stats := s.Nodes.Stats()
		nodes, sent = int64(stats.Nodes), stats.Accepted
	}
	if s.Queue != nil {
		deadLetters = s.Queue.Counts().DeadLettered
	}
	err := s.Pool.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM sensor_data.readings WHERE timestamp >= @started),
		       (SELECT count(*) FROM alerts WHERE NOT acknowledged)`,
		pgx.StrictNamedArgs{"started": started},
	).Scan(&stored, &alerts)
	if err != nil {
		return "", fmt.Errorf("status: %w", err)
	}
	return fmt.Sprintf("simulated nodes %d · readings sent %d · stored %d · active alert records %d · dead letters %d", nodes, sent, stored, alerts, deadLetters), nil
}
