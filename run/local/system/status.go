package system

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Status says on one line what the system has done: the simulated nodes that the gateway has
// registered and their readings that it accepted, the readings of any node stored with a
// time since started, the active alerts and the dead letters; at first, how much of the past is sent.
func (s *System) Status(ctx context.Context, started time.Time) (string, error) {
	select {
	case <-s.pastOver:
	default:
		return fmt.Sprintf("the past of the simulated rooms: %d %% of %s", s.pastDone.Load(), s.options.History), nil
	}
	var online, sent, stored, alerts, deadLetters int64
	if s.Nodes != nil {
		stats := s.Nodes.Stats()
		online, sent = stats.Registered, stats.Accepted
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
	return fmt.Sprintf("simulated nodes %d · readings sent %d · stored %d · active alerts %d · dead letters %d", online, sent, stored, alerts, deadLetters), nil
}
