package pipeline

import (
	"context"
	"time"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// SensorStatus is the status of a node's sensor. It is not limited to one customer: the
// pipeline serves all of them, and none can read it.
type SensorStatus struct {
	Owned      bool              // a customer has the sensor; in the open channel, the id's holder
	Signed     bool              // the sensor takes readings of its customer's own channel only
	CustomerID int64             // owner; 0 if there is none
	RoomID     int64             // the sensor's
	HeldFrom   time.Time         // of the open channel: what is older is not its owner's
	Budget     float64           // false alarms per node and month that the customer accepts
	Deleted    bool              // it was a sensor, and has no owner now
	Thresholds *alert.Thresholds // its owner's; nil when they never set any
	Rules      []incident.Rule   // that judge it, without the two thresholds
	Remembers  bool              // one of its rules has memory: the next reading must be judged

	Corrections reading.Corrections // of the customers whose sensor it is or was
}

// ofNodes joins nodes n with their sensors o, which may be absent, and places. deleted is the condition that
// the sensor was deleted and has no owner now.
const (
	ofNodes = `FROM unnest(@channels::bigint[], @ids::text[]) WITH ORDINALITY AS n (channel, node_id, place)
		LEFT JOIN LATERAL (
		    SELECT s.customer_id, s.room_id, s.signed_from
		    FROM sensors s
		    WHERE s.node_id = n.node_id AND s.customer_id = CASE n.channel
		        WHEN 0 THEN (SELECT h.customer_id FROM open_holds h WHERE h.node_id = n.node_id AND h.held_until = 'infinity')
		        ELSE n.channel
		    END
		    LIMIT 1 -- forces the key: a join would read all sensors for one
		) AS o ON true`
	deleted = `o.customer_id IS NULL AND ` + store.Buried
)

// SensorStatuses returns the status of each node. Unknown nodes are absent. A node that a
// customer's enrolled gateway reports, and that is not a sensor, is judged by the customer's
// thresholds and by their rules for all sensors.
func (s Store) SensorStatuses(ctx context.Context, nodes []reading.Node) (map[reading.Node]SensorStatus, error) {
	type row struct {
		Channel        reading.Channel
		NodeID         string
		Deleted        bool
		Signed         bool
		CustomerID     int64
		RoomID         int64
		HeldFrom       *time.Time
		Budget         float64
		MaxTemperature *float64
		MaxHumidity    *float64
		Rules          []incident.Rule
		Remembers      bool
		Corrections    reading.Corrections
	}
	channels, ids := store.NodeKeys(nodes)
	found, err := store.All[row](ctx, s.db, `
		SELECT n.channel, n.node_id, COALESCE(o.customer_id, 0) AS customer_id, COALESCE(o.room_id, 0) AS room_id,
		       (SELECT NULLIF(h.held_from, '-infinity') FROM open_holds h WHERE n.channel = 0 AND h.node_id = n.node_id AND h.held_until = 'infinity') AS held_from,
		       COALESCE(b.false_alarms_per_month, 1) AS budget,
		       o.signed_from IS NOT NULL AS signed, `+deleted+` AS deleted,
		       l.max_temperature, l.max_humidity, r.rules, `+store.CorrectionsOf+`,
		       EXISTS (SELECT FROM rule_memory m WHERE m.channel = n.channel AND m.node_id = n.node_id) AS remembers
		`+ofNodes+`
		LEFT JOIN learning_settings b ON b.customer_id = o.customer_id
		LEFT JOIN alert_thresholds l ON l.customer_id = COALESCE(o.customer_id, n.channel) AND NOT l.assumed
		LEFT JOIN LATERAL (
		    SELECT json_agg(`+incidents.RuleObject+` ORDER BY r.id) AS rules
		    FROM customer_rules r
		    WHERE r.customer_id = COALESCE(o.customer_id, n.channel) AND r.enabled AND NOT r.threshold
		      AND r.room_id IN (0, o.room_id) AND r.node_id IN ('', n.node_id)
		) AS r ON true`,
		store.Args{"channels": channels, "ids": ids}, "%d nodes", len(ids))
	if err != nil {
		return nil, err
	}
	statuses := make(map[reading.Node]SensorStatus, len(found))
	for _, r := range found {
		if r.Deleted {
			statuses[reading.Node{Channel: r.Channel, ID: r.NodeID}] = SensorStatus{Deleted: true}
			continue
		}
		sensor := ""
		if r.CustomerID != 0 {
			sensor = r.NodeID
		}
		status := SensorStatus{
			Owned: r.CustomerID != 0, Signed: r.Signed, CustomerID: r.CustomerID, RoomID: r.RoomID, HeldFrom: store.UTC(r.HeldFrom), Budget: r.Budget,
			Remembers: r.Remembers, Corrections: r.Corrections, Rules: incident.Effective(r.Rules, r.RoomID, sensor),
		}
		if r.MaxTemperature != nil && r.MaxHumidity != nil {
			status.Thresholds = &alert.Thresholds{MaxTemperature: *r.MaxTemperature, MaxHumidity: *r.MaxHumidity}
		}
		if status.Owned || status.Remembers || len(status.Corrections) > 0 || status.Thresholds != nil || len(status.Rules) > 0 {
			statuses[reading.Node{Channel: r.Channel, ID: r.NodeID}] = status
		}
	}
	return statuses, nil
}
