package detect

import (
	"context"
	"math"
	"strconv"
	"time"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/wire"
)

// forecastFor is the greatest age of a reading from which forecasts are made.
const forecastFor = 5 * time.Minute

// rangeScore is the score of a value that the sensor cannot measure: once in a million
// hours.
const rangeScore = 6.0

// find returns the findings for a reading: those that hold and, while the sensor's rules have
// memory, those that do not. It returns none until the room has been read once.
func (d *AnomalyDetector) find(ctx context.Context, data wire.Data, sensor pipeline.SensorStatus, c *anomaly.Calibration, outOfRange bool) []incident.Finding {
	r := data.Reading
	room, known := d.rooms.room(ctx, sensor, c)
	if !known {
		return nil
	}
	room.mu.Lock()
	defer room.mu.Unlock()
	n, ok := room.nodes[r.Node()]
	if !ok { // its first reading, or the first since it was put into the room
		n = room.enter(r.Node())
	}
	w, by := data.Recent, learning.ByWindow
	if w.Len() == 0 {
		w, by = n.windowOf(r), learning.ByLiveState
	}
	n.learn(w, r, by)
	var findings []incident.Finding
	add := func(found incident.Finding, judged bool) {
		if !judged || !found.Holds && !sensor.Remembers {
			return
		}
		if err := found.Validate(); err != nil {
			d.log.ErrorContext(ctx, "invalid finding dropped", "node_id", r.NodeID, "error", err.Error())
			return
		}
		findings = append(findings, found)
	}
	add(anomalyOf(room, n, w, r, sensor, c, outOfRange))
	if d.clock().Sub(r.Time) < forecastFor {
		corrected, _ := sensor.Corrections.Apply(r, reading.Window{})
		add(passing(sensor.Corrections.Level(w, r.Time), corrected, sensor, n.width))
	}
	return findings
}

// anomalyOf judges how unusual a reading is for its node and whether its room's cooling has failed, and
// explains it by the corrected reading. The caller holds the room.
func anomalyOf(
	in *room, n *roomNode, w reading.Window, r reading.Reading, sensor pipeline.SensorStatus, c *anomaly.Calibration, outOfRange bool,
) (found incident.Finding, judged bool) {
	room := strconv.FormatInt(sensor.RoomID, 10)
	v := anomaly.Statistics(w, r, &n.Day, n.Around(r.Time, n.neighbours))
	anew := c.Anew(r.NodeID, &n.Live, w, r, &v)
	score := c.Score(r.NodeID, room, r.Time, v)
	own := n.Move(w, r)
	together, heard := in.together(r.Time)
	interval := ""
	if in.other {
		interval = c.Interval(r.NodeID, &n.Live)
	}
	notice, cooling := n.Cooling(c, r.NodeID, room, r.Time, together, heard)
	measured := r.Temperature
	r, _ = sensor.Corrections.Apply(r, reading.Window{})
	found = incident.Finding{Kind: incident.KindAnomaly}
	alarm := anomaly.Alarm(sensor.Budget)
	switch {
	case outOfRange:
		found.Holds, found.Score, found.Cause = true, max(score, rangeScore), "range"
		found.Reason, found.Quantity, found.Value = "a value that the sensor cannot measure", incident.Temperature, r.Temperature
		if humidity := r.AsMeasured().Humidity; humidity <= 0 || humidity >= 100 {
			found.Quantity, found.Value = incident.Humidity, r.Humidity
		}
	case cooling: // whatever its score and the budget of false alarms
		correction := r.Temperature - measured
		return incident.Finding{
			Kind: incident.KindAnomaly, Holds: true, Score: max(score, anomaly.CoolingScore), Cause: notice.Cause, Reason: notice.Reason,
			Severity: incident.Warning, Quantity: incident.Temperature, Value: notice.Value + correction, Low: notice.Low + correction, High: notice.High + correction,
		}, true
	case score <= alarm && (anew || interval != ""): // one notice, until the calibration knows it
		found.Holds, found.Score, found.Cause, found.Reason = true, alarm, "interval", interval
		if anew {
			found.Cause, found.Reason = "digits", anomaly.NewDigits
		}
		found.Severity, found.Quantity, found.Value = incident.Warning, incident.Temperature, r.Temperature
		return found, reading.Has(r.Temperature)
	case score <= alarm:
		return found, score > 0 || !math.IsNaN(float64(own.Change[0]))
	default:
		reason := c.Explain(r.NodeID, room, r, v)
		found.Holds, found.Score, found.Cause, found.Reason = true, score, reason.Statistic.String(), reason.String()
		found.Quantity, found.Value, found.Low, found.High = incident.Temperature, r.Temperature, reason.Low, reason.High
		switch reason.Quantity {
		case "":
			if !reading.Has(r.Temperature) {
				found.Quantity, found.Value = incident.Humidity, r.Humidity
			}
		case "dew_point":
			found.Quantity, found.Value = incident.DewPoint, reading.DewPoint(r.Temperature, r.Humidity)
		}
	}
	found.Severity, found.Probability = incident.Warning, math.Pow(10, -found.Score)
	return found, true
}

// passing forecasts whether the temperature will exceed one of its limits, the threshold or a
// critical rule's, and reports the lowest one.
func passing(w reading.Window, r reading.Reading, sensor pipeline.SensorStatus, width anomaly.Width) (found incident.Finding, judged bool) {
	found = incident.Finding{Kind: incident.KindForecast}
	if _, judged = anomaly.TrendOf(w, r, 0); !judged {
		return found, false
	}
	limit, p, passes := math.Inf(1), anomaly.Passing{}, false
	try := func(l float64) {
		if l < limit {
			if next, ok := anomaly.Passes(w, r, l, width); ok {
				limit, p, passes = l, next, true
			}
		}
	}
	if sensor.Thresholds != nil {
		try(sensor.Thresholds.MaxTemperature)
	}
	for _, rule := range sensor.Rules {
		if rule.Quantity == incident.Temperature && rule.Direction == incident.Above && rule.Severity == incident.Critical {
			try(rule.Limit)
		}
	}
	if !passes {
		return found, true
	}
	return incident.Finding{
		Kind: incident.KindForecast, Holds: true, Score: anomaly.Horizon / max(1, p.Earliest), Cause: "limit", Reason: p.Sentence(limit),
		Severity: incident.Warning, Quantity: incident.Temperature, Value: r.Temperature, Limit: limit,
		Earliest: minutes(p.Earliest), Latest: minutes(p.Latest),
	}, true
}

func minutes(m float64) time.Duration {
	return time.Duration(m * float64(time.Minute)).Round(time.Second)
}
