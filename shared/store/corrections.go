package store

import (
	"time"

	"coldaisle.dev/shared/reading"
)

// CorrectionsOf is a subquery for the corrections of a node n, newest first, as [CorrectionRow]s.
// Each has a span of the node's readings that its customer may see: no others are corrected.
const CorrectionsOf = `(
	SELECT json_agg(json_build_object(
	    'From', c.from_time, 'VisibleFrom', NULLIF(v.visible_from, '-infinity'), 'VisibleUntil', NULLIF(v.visible_until, 'infinity'),
	    'Temperature', c.temperature_offset, 'Humidity', c.humidity_offset) ORDER BY c.from_time DESC)
	FROM corrections c
	JOIN visible_spans v ON v.customer_id = c.customer_id AND v.node_id = c.node_id AND v.channel = n.channel
	WHERE c.node_id = n.node_id AND c.withdrawn_at IS NULL) AS corrections`

// CorrectionRow is a correction as [CorrectionsOf] returns it.
type CorrectionRow struct {
	From                      time.Time
	VisibleFrom, VisibleUntil *time.Time
	Temperature, Humidity     float64
}

// ConvertCorrections converts rows of [CorrectionsOf].
func ConvertCorrections(rows []CorrectionRow) (all reading.Corrections) {
	for _, r := range rows {
		all = append(all, reading.Correction{
			From: r.From.UTC(), Visible: reading.Span{From: UTC(r.VisibleFrom), Until: UTC(r.VisibleUntil)},
			Temperature: r.Temperature, Humidity: r.Humidity,
		})
	}
	return all
}
