package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// EpisodeGap is how long no alert of a sensor and type comes before the next one
// begins another episode: a sensor silent for so long counts as offline.
const EpisodeGap = 5 * time.Minute

// activeLookback is how far before the oldest unacknowledged alert active episodes
// are traced to their beginning.
const activeLookback = 24 * time.Hour

// Episode is a run of alerts of one sensor and type, each at most [EpisodeGap]
// after the one before.
type Episode struct {
	SensorID       string
	Type           string    // temperature or humidity
	Start, End     time.Time // of its first and last alert's readings
	Peak           float64   // highest value, °C or % relative humidity
	Threshold      float64   // threshold exceeded; the highest, if it was changed meanwhile
	Alerts         int
	Unacknowledged int
}

// EpisodeQuery says which alerts are folded into episodes.
type EpisodeQuery struct {
	Active   bool      // only episodes with unacknowledged alerts
	SensorID string    // of this sensor only; empty for all
	Start    time.Time // alerts from this instant on; zero for all, or as far back as active ones need
	End      time.Time // alerts before this instant; zero for all
	Limit    int       // episodes at most
}

// Episodes folds a customer's alerts into episodes, those that ended last first.
// An episode that crosses the begin or end of the range shows what of it lies
// inside.
func (s *Store) Episodes(ctx context.Context, customerID int64, q EpisodeQuery) ([]Episode, error) {
	found, err := queryAll[Episode](ctx, s, `
		WITH oldest AS (
		    -- Active episodes need no alert from longer than @reach before the oldest unacknowledged one.
		    SELECT CASE WHEN @active::boolean THEN min(timestamp) - @reach::interval END AS timestamp
		    FROM alerts
		    WHERE customer_id = @customer AND NOT acknowledged AND @active
		), pieces AS (
		    -- Alerts within a slice as wide as the gap are one episode: they need no sorting, and
		    -- half a million of them become a tenth of the rows.
		    SELECT sensor_id, alert_type, min(timestamp) AS first, max(timestamp) AS last, max(value) AS peak,
		           max(threshold) AS threshold, count(*) AS alerts, count(*) FILTER (WHERE NOT acknowledged) AS unacknowledged
		    FROM alerts
		    WHERE customer_id = @customer
		      AND timestamp >= GREATEST(COALESCE(@start::timestamptz, '-infinity'), (SELECT timestamp FROM oldest))
		      AND timestamp < COALESCE(@end::timestamptz, 'infinity')
		      AND (@sensor = '' OR sensor_id = @sensor)
		    GROUP BY sensor_id, alert_type, date_bin(@gap::interval, timestamp, 'epoch')
		), apart AS (
		    SELECT *, first - lag(last) OVER series <= @gap::interval AS goes_on
		    FROM pieces
		    WINDOW series AS (PARTITION BY sensor_id, alert_type ORDER BY first)
		), numbered AS (
		    SELECT *, count(*) FILTER (WHERE goes_on IS NOT TRUE) OVER series AS episode
		    FROM apart
		    WINDOW series AS (PARTITION BY sensor_id, alert_type ORDER BY first)
		)
		SELECT sensor_id, alert_type AS type, min(first) AS start, max(last) AS end, max(peak) AS peak,
		       max(threshold) AS threshold, sum(alerts)::bigint AS alerts, sum(unacknowledged)::bigint AS unacknowledged
		FROM numbered
		GROUP BY sensor_id, alert_type, episode
		HAVING NOT @active OR sum(unacknowledged) > 0
		ORDER BY max(last) DESC, min(first) DESC, sensor_id, alert_type
		LIMIT @limit`,
		pgx.StrictNamedArgs{
			"customer": customerID, "active": q.Active, "sensor": q.SensorID, "start": instantOrNull(q.Start),
			"end": instantOrNull(q.End), "limit": q.Limit, "gap": EpisodeGap, "reach": activeLookback,
		})
	if err != nil {
		return nil, fmt.Errorf("episodes of customer %d: %w", customerID, err)
	}
	return found, nil
}

// AcknowledgeEpisode marks a customer's alerts of one sensor and type from start
// to end, both included, as acknowledged: the alerts that the user saw, and no later ones. It returns how many it marked, none when they were already,
// or [ErrNoAlert] if there is no alert in the range.
func (s *Store) AcknowledgeEpisode(ctx context.Context, customerID int64, sensorID, alertType string, start, end time.Time) (int, error) {
	var present bool
	var marked int
	err := s.pool.QueryRow(ctx, `
		WITH episode AS (
		    SELECT id, acknowledged
		    FROM alerts
		    WHERE customer_id = @customer AND sensor_id = @sensor AND alert_type = @type
		      AND timestamp BETWEEN @start AND @end
		), marked AS (
		    UPDATE alerts
		    SET acknowledged = true
		    WHERE id IN (SELECT id FROM episode WHERE NOT acknowledged)
		    RETURNING id
		)
		SELECT EXISTS (SELECT FROM episode), (SELECT count(*) FROM marked)`,
		pgx.StrictNamedArgs{"customer": customerID, "sensor": sensorID, "type": alertType, "start": start, "end": end},
	).Scan(&present, &marked)
	if err != nil {
		return 0, fmt.Errorf("acknowledge %s alerts of %s: %w", alertType, sensorID, err)
	}
	if !present {
		return 0, fmt.Errorf("acknowledge %s alerts of %s: %w", alertType, sensorID, ErrNoAlert)
	}
	return marked, nil
}

// instantOrNull is NULL for the zero time.
func instantOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
