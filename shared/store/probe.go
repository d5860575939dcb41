package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
)

// KeepProbe keeps when a reading of the probe was published and when it was received,
// in any order and however often they come.
func (s *Store) KeepProbe(ctx context.Context, published, received time.Time) error {
	_, err := s.pool.Exec(ctx, `
		INSERT INTO probe AS p (published_at, received_at, late_at)
		VALUES (@published, @received, CASE WHEN @received::timestamptz > @published::timestamptz + @late::interval THEN @received::timestamptz END)
		ON CONFLICT (only_row) DO UPDATE
		SET published_at = GREATEST(p.published_at, EXCLUDED.published_at),
		    received_at = GREATEST(p.received_at, EXCLUDED.received_at),
		    late_at = GREATEST(p.late_at, EXCLUDED.late_at,
		        CASE WHEN EXCLUDED.received_at > p.received_at + @interval::interval + @late::interval THEN EXCLUDED.received_at END)`,
		pgx.StrictNamedArgs{
			"published": published, "received": received, "interval": incident.ProbeInterval, "late": incident.MaxProbeLateness,
		})
	return wrap(err, "keep the probe")
}

var errNoProbe = errors.New("no reading of the probe yet")

// Probe returns what the readings of the probe tell of the service.
func (s *Store) Probe(ctx context.Context) (incident.Probe, error) {
	type row struct {
		PublishedAt time.Time
		LateAt      *time.Time
	}
	found, err := queryOne[row](ctx, s, errNoProbe, `SELECT published_at, late_at FROM probe`, nil)
	if errors.Is(err, errNoProbe) {
		return incident.Probe{}, nil
	}
	if err != nil {
		return incident.Probe{}, fmt.Errorf("probe: %w", err)
	}
	probe := incident.Probe{Published: found.PublishedAt.UTC()}
	if found.LateAt != nil {
		probe.LateAt = found.LateAt.UTC()
	}
	return probe, nil
}
