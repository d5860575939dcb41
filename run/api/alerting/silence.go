package alerting

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// member is a silent node of a gateway that is silent as a whole.
type member struct {
	ID           string    `json:"id" doc:"Identifier of the node's silence, which can be acknowledged alone." example:"silence.7.1772366400000000.esp32-7f3a"`
	SensorID     string    `json:"sensor_id" doc:"Identifier of the node hardware." example:"esp32-7f3a"`
	SensorName   *string   `json:"sensor_name" doc:"Name of the sensor; null for a node that is no sensor yet." example:"Rack 3"`
	RoomID       *int64    `json:"room_id" doc:"Room of the sensor; null for a node that is no sensor yet." example:"3"`
	RoomName     *string   `json:"room_name" doc:"Name of that room." example:"Hall A"`
	LastTime     rest.Time `json:"last_time" doc:"Newest reading, UTC." example:"2026-03-01T12:40:00Z"`
	Acknowledged bool      `json:"acknowledged" doc:"Whether somebody has seen to it." example:"false"`
}

// silence is of one node, or of all nodes of a gateway. The first is silent for the
// longest time.
type silence struct {
	nodes   []incidents.Silence
	gateway bool
	group   string // the silence that is the first of its gateway's, or its room's
}

// silences are the caller's now: a gateway of which all nodes are silent has one, other
// nodes have one each.
func silences(ctx context.Context, s *store.DB, customer int64, now time.Time) ([]silence, error) {
	nodes, gateways, err := incidents.New(s).Silences(ctx, customer, now)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(nodes, func(a, b incidents.Silence) int { return a.Since().Compare(b.Since()) })
	type place struct {
		gateway string
		room    int64
	}
	groups, whole := map[place]string{}, map[string]int{}
	var found []silence
	for _, node := range nodes {
		if k, ok := whole[node.GatewayID]; ok {
			found[k].nodes = append(found[k].nodes, node)
			continue
		}
		of := place{room: node.RoomID}
		if node.GatewayID != "" {
			of = place{gateway: node.GatewayID}
		}
		groups[of] = cmp.Or(groups[of], nodeSilenceID(node))
		one := silence{nodes: []incidents.Silence{node}, gateway: gateways[node.GatewayID], group: groups[of]}
		if one.gateway {
			whole[node.GatewayID] = len(found)
		}
		found = append(found, one)
	}
	for k := range found {
		if s := &found[k]; len(s.nodes) == 1 && s.nodes[0].Cause(now) != incident.GatewaySilence {
			s.gateway = false // it is the node
		}
		if s := &found[k]; s.gateway {
			s.group = s.id()
		}
	}
	return found, nil
}

// nodeSilenceID is the id of a node's silence: the node and the time of its newest
// reading. When another reading comes, there is no such silence any more.
func nodeSilenceID(s incidents.Silence) string {
	return fmt.Sprintf("silence.%d.%d.%s", s.Channel, s.Newest.UnixMicro(), s.NodeID)
}

func (s silence) newest() time.Time {
	return slices.MaxFunc(s.nodes, func(a, b incidents.Silence) int { return a.Newest.Compare(b.Newest) }).Newest
}

// id of a gateway's silence is the gateway and the time of its newest reading.
func (s silence) id() string {
	if !s.gateway {
		return nodeSilenceID(s.nodes[0])
	}
	return fmt.Sprintf("silence.gateway.%d.%s", s.newest().UnixMicro(), s.nodes[0].GatewayID)
}

// in reports whether a node of the silence is in a room.
func (s silence) in(room int64) bool {
	return slices.ContainsFunc(s.nodes, func(n incidents.Silence) bool { return n.RoomID == room })
}

// of reports whether the silence is a node's, too.
func (s silence) of(node string) bool {
	return slices.ContainsFunc(s.nodes, func(n incidents.Silence) bool { return n.NodeID == node })
}

func (s silence) incident(now time.Time) Excursion {
	first := s.nodes[0]
	cause := first.Cause(now)
	shown := Excursion{
		OpenIncident: OpenIncident{
			ID: s.id(), GroupID: s.group, Kind: string(incident.KindSilence), Severity: string(incident.Warning),
			Reason:   incident.DescribeSilence(first.Newest, first.Interval, cause, now),
			SensorID: first.NodeID, SensorName: nonzero(first.SensorName), RoomID: nonzero(first.RoomID),
			GatewayID: nonzero(first.GatewayID), StartTime: rest.UTC(first.Since()),
		},
		State: "lasting", RoomName: nonzero(first.RoomName), LastTime: rest.UTC(s.newest()), Members: []member{},
	}
	unseen := slices.IndexFunc(s.nodes, func(n incidents.Silence) bool { return n.AcknowledgedAt == nil })
	if shown.Acknowledged = unseen < 0; shown.Acknowledged {
		shown.AcknowledgedAt, shown.AcknowledgedBy, shown.Comment = rest.OptionalUTC(first.AcknowledgedAt), nonzero(first.AcknowledgedBy), nonzero(first.Comment)
	}
	if s.gateway {
		if slices.ContainsFunc(s.nodes, func(n incidents.Silence) bool { return n.Cause(now) == incident.UplinkDown }) {
			cause = incident.UplinkDown
		}
		shown.Severity = string(incident.Critical)
		shown.Reason = incident.DescribeGatewaySilence(first.GatewayName, len(s.nodes), shown.LastTime.Time, cause, now)
		shown.Members = rest.List(s.nodes, func(n incidents.Silence) member {
			return member{
				ID: nodeSilenceID(n), SensorID: n.NodeID, SensorName: nonzero(n.SensorName), RoomID: nonzero(n.RoomID), RoomName: nonzero(n.RoomName),
				LastTime: rest.UTC(n.Newest), Acknowledged: n.AcknowledgedAt != nil,
			}
		})
	}
	shown.Cause = nonzero(string(cause))
	return shown
}

// has reports whether each word stands in the texts of a silence, as [incidents.Store.Excursions]
// looks for it in those of other kinds.
func (i Excursion) has(words []string) bool {
	texts := []string{i.SensorID, deref(i.SensorName), deref(i.RoomName), deref(i.GatewayID), i.Kind, i.Severity, i.Reason, deref(i.AcknowledgedBy), deref(i.Comment)}
	for _, m := range i.Members {
		texts = append(texts, m.SensorID, deref(m.SensorName), deref(m.RoomName))
	}
	text := strings.ToLower(strings.Join(texts, " "))
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, strings.ToLower(word)) })
}

// acknowledgeSilences acknowledges the silences of the ids, or of a room: each of their
// nodes, and of a gateway's one node if the id is that node's. The nodes that nobody had
// seen before are newly so.
func acknowledgeSilences(
	ctx context.Context, tx *store.DB, customer int64, a incidents.Acknowledgement, ids map[string]bool, now time.Time,
) (seen []Excursion, newly []string, err error) {
	if len(ids) == 0 && a.Kind != string(incident.KindSilence) {
		return nil, nil, nil
	}
	all, err := silences(ctx, tx, customer, now)
	if err != nil {
		return nil, nil, err
	}
	var nodes []incidents.Silence
	named, touched := 0, map[string]bool{}
	take := func(of silence, some ...incidents.Silence) {
		nodes, touched[of.id()] = append(nodes, some...), true
	}
	for _, s := range all {
		if ids[s.id()] {
			named++
			take(s, s.nodes...)
		} else if a.Kind == string(incident.KindSilence) && s.in(a.RoomID) {
			take(s, slices.DeleteFunc(slices.Clone(s.nodes), func(n incidents.Silence) bool { return n.RoomID != a.RoomID })...)
		}
		for _, n := range s.nodes {
			if s.gateway && ids[nodeSilenceID(n)] {
				named++
				take(s, n)
			}
		}
	}
	if named < len(ids) {
		return nil, nil, store.ErrNoIncident
	}
	for _, n := range nodes {
		if id := nodeSilenceID(n); n.AcknowledgedAt == nil && !slices.Contains(newly, id) {
			newly = append(newly, id)
		}
	}
	if err := incidents.New(tx).AcknowledgeSilences(ctx, customer, nodes, a.By, a.Comment); err != nil {
		return nil, nil, err
	}
	if all, err = silences(ctx, tx, customer, now); err != nil {
		return nil, nil, err
	}
	for _, s := range all {
		if touched[s.id()] {
			seen = append(seen, s.incident(now))
		}
	}
	return seen, newly, nil
}
