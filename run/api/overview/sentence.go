package overview

import (
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/store/incidents"
)

// sentence is the answer to "is everything all right?", which claims nothing that is not known.
type sentence struct {
	Says       string     `json:"says" enum:"incident,service_late,no_sensor_reports,maintenance,outside_recommended,nothing_wrong" doc:"What it is about: the first of the incidents; readings that are on their way, so no sensor is to blame; that no sensor sends readings; incidents or silent sensors that maintenance covers, and no others; a reading outside the recommended range, while no limit is broken; that nothing is wrong." example:"incident"`
	Tone       string     `json:"tone" enum:"quiet,note,warning,critical" doc:"How grave it is. An incident that somebody has is a note." example:"critical"`
	IncidentID *int64     `json:"incident_id" doc:"The incident that it is about; null if about none." example:"41"`
	Cause      *string    `json:"cause" doc:"Its cause." example:"too_hot"`
	Room       *string    `json:"room" doc:"Name of the room; null where there is none." example:"Hall A"`
	SensorID   *string    `json:"sensor_id" doc:"Its worst sensor, or that farthest outside the recommended range." example:"esp32-7f3a"`
	Sensor     *string    `json:"sensor" doc:"Name of that sensor." example:"Rack 3"`
	Quantity   *string    `json:"quantity" doc:"What the value is of." example:"temperature"`
	Value      *float64   `json:"value" doc:"Newest value of that sensor; null where there is none." example:"33.8"`
	ValueAt    *rest.Time `json:"value_at" nullable:"true" doc:"When that of an incident was measured, UTC; null where there is none." example:"2026-03-01T12:14:30Z"`
	Limit      *float64   `json:"limit" doc:"The limit beyond which it is; null where there is none." example:"27"`
	Rate       *float64   `json:"rate" doc:"Change of the value per minute over the last 10 or 3 minutes, whichever is less; null where it is not known." example:"0.6"`
	Since      *rest.Time `json:"since" nullable:"true" doc:"When it began, UTC." example:"2026-03-01T12:00:00Z"`
	TakenBy    *string    `json:"taken_by" doc:"Who has it; null if nobody has." example:"coldaisle"`
	Others     int        `json:"others" doc:"How many further incidents last that maintenance does not cover." example:"0"`
	Drills     int        `json:"drills" doc:"How many alarm drills last. No other part of the sentence, and no count, is of them." example:"0"`
	Outside    int        `json:"outside" doc:"How many sensors are outside the recommended range." example:"0"`
}

type incidentCounts struct {
	Lasting  int `json:"lasting" doc:"All that last." example:"3"`
	Open     int `json:"open" doc:"That last and nobody has; silenced and late ones not." example:"1"`
	Taken    int `json:"taken" doc:"That last and somebody has; silenced ones not." example:"1"`
	Silenced int `json:"silenced" doc:"That last and maintenance covers." example:"1"`
	Unseen   int `json:"unseen" doc:"That are over and nobody has seen." example:"0"`
	ToBeSeen int `json:"to_be_seen" doc:"Those that are open, and those unseen." example:"1"`
}

func countIncidents(lasting []incidents.Incident, unseen int) incidentCounts {
	in := map[incidents.IncidentState]int{}
	for _, i := range lasting {
		in[i.State()]++
	}
	open := in[incidents.StateOpen]
	return incidentCounts{
		Lasting: len(lasting), Open: open, Taken: in[incidents.StateTaken], Silenced: in[incidents.StateSilenced], Unseen: unseen, ToBeSeen: open + unseen,
	}
}

// The tones.
const (
	toneQuiet = "quiet"
	toneNote  = "note"
)

// say makes the sentence from incidents in their order.
func (b *Body) say(lasting []incidents.Incident, recommended []incident.Rule, late bool) sentence {
	said := sentence{Tone: toneNote}
	var farthest *liveSensor
	var beyond, measured float64
	var broken incident.Rule
	for k := range b.Sensors {
		s := &b.Sensors[k]
		if !s.Reports {
			continue
		}
		outside := false
		for _, rule := range recommended {
			if value, excess := rule.Measure(s.values); excess > 0 {
				outside = true
				if farthest == nil || excess > beyond {
					farthest, beyond, measured, broken = s, excess, value, rule
				}
			}
		}
		if outside {
			said.Outside++
		}
	}
	audible := b.Incidents[:len(lasting)]
	for len(audible) > 0 && lasting[len(audible)-1].Silenced { // these are the last
		audible = audible[:len(audible)-1]
	}
	switch {
	case len(audible) > 0:
		worst, i := audible[0], lasting[0]
		said.Says, said.IncidentID, said.Cause, said.Room, said.Others = "incident", &worst.ID, &worst.Cause, worst.RoomName, len(audible)-1
		said.SensorID, said.Sensor, said.Quantity, said.Limit = &worst.Worst.SensorID, worst.Worst.SensorName, worst.Worst.Quantity, worst.Worst.Limit
		said.Value, said.ValueAt, said.Rate, said.Since = worst.Now.Value, worst.Now.ValueAt, worst.Now.Rate, &worst.StartTime
		if i.TakenAt != nil {
			said.TakenBy = worst.TakenBy
		} else if !i.Late {
			said.Tone = worst.Severity
		}
	case late:
		said.Says = "service_late"
	case b.Counts.Reporting == 0:
		said.Says = "no_sensor_reports"
	case farthest != nil && len(lasting) == 0: // else a limit may be broken in maintenance
		said.Says, said.SensorID, said.Sensor = "outside_recommended", &farthest.ID, &farthest.Name
		said.Quantity, said.Value, said.Limit = new(string(broken.Quantity)), &measured, &broken.Limit
		for _, r := range b.Rooms {
			if r.ID == farthest.RoomID {
				said.Room = &r.Name
			}
		}
	case len(lasting) > 0 || b.Counts.Silent > 0:
		said.Says = "maintenance"
	default:
		said.Says, said.Tone = "nothing_wrong", toneQuiet
	}
	return said
}
