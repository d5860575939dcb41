package train

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store/learning"
)

const (
	day = 24 * time.Hour
	// daysKept is the number of days that a calibration is made of.
	daysKept = anomaly.Hours / 24
	// calibrationsKept is the number of a customer's calibrations that are kept for a roll-back.
	calibrationsKept = 7
	// maxTogether bounds the nodes that are read at a time, with two days of readings each.
	// Nodes are in the order of rooms, and neighbours are found among those read.
	maxTogether = 512
	// maxReadings bounds the readings of those nodes, some 300 MB: a little more than they send
	// at two a minute.
	maxReadings = 3_000_000
	// saveTimeout bounds the time in which hours that were read are kept.
	saveTimeout = 5 * time.Second
	// tick is the interval at which neighbours are refreshed, as in detection.
	tick = 30 * time.Second

	// Artifacts of another format are not read: their days are read from the readings again.
	hoursPrefix       = "hours_air_"
	calibrationPrefix = "calibration_air_"
)

// refresh makes today's calibration of each customer who has none yet. The next delivery
// retries the customers that failed, in another order: one who takes all of the time at each
// delivery keeps nobody from a calibration for long.
func (t *Train) refresh(ctx context.Context) error {
	today := t.clock().UTC().Truncate(day)
	customers, err := t.runs.CustomersWithSensors(ctx)
	if err != nil {
		return err
	}
	rand.Shuffle(len(customers), func(i, j int) { customers[i], customers[j] = customers[j], customers[i] }) //nolint:gosec // keeps no secret
	var errs []error
	for _, customer := range customers {
		if err := t.calibrate(ctx, customer, today); err != nil {
			errs = append(errs, fmt.Errorf("calibration of customer %d: %w", customer, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// calibrate makes a customer's calibration from the days before today. The hours of a day are
// an artifact: only days without one are read. Episodes that people judged right are left
// out only here, so that a verdict may be given or changed weeks later.
func (t *Train) calibrate(ctx context.Context, customer int64, today time.Time) error {
	name := calibrationPrefix + today.Format("20060102")
	manifest, err := t.models.Manifest(ctx, customer)
	if err != nil || manifest.Calibration == name {
		return err
	}
	nodes, err := t.runs.PlacedNodes(ctx, customer)
	if err != nil {
		return err
	}
	right, err := t.runs.RightEpisodes(ctx, customer, today.Add(-(daysKept+1)*day))
	if err != nil {
		return err
	}
	past, heard := make([]anomaly.NodeHours, len(nodes)), make([][]anomaly.PastHour, len(nodes))
	places := make(map[string]int, len(nodes))
	for i, n := range nodes {
		past[i] = anomaly.NodeHours{Node: n.ID, Room: strconv.FormatInt(n.RoomID, 10)}
		places[n.ID] = i
	}
	rooms, placed := map[string][]anomaly.Climate{}, make([]string, len(nodes)) // placed: each node's room on the day before
	kept := map[string]bool{name: true}
	for back := daysKept; back > 0; back-- {
		start := today.Add(-time.Duration(back) * day)
		hours, err := t.hoursOf(ctx, customer, nodes, start)
		if err != nil {
			return err
		}
		kept[hoursPrefix+start.Format("20060102")] = true
		for _, n := range hours {
			if n.Node == "" {
				rooms[n.Room] = append(rooms[n.Room], n.Air...)
			}
			if i, ok := places[n.Node]; ok {
				if past[i].Air = append(past[i].Air, n.Air...); placed[i] != "" && placed[i] != n.Room {
					past[i].Air = nil // it was moved on that day: the air of another place says nothing of this one
				}
				past[i].Neighbours, placed[i] = n.Neighbours, n.Room
				for hour, h := range n.Hours {
					if !h.Silent() { // verdicts may remove a share of the hours that were heard
						heard[i] = append(heard[i], anomaly.PastHour{Start: start.Add(time.Duration(hour) * time.Hour), Hour: h, Instrument: n.Instrument})
					}
				}
			}
		}
	}
	for i := range past {
		its := right[past[i].Node]
		past[i].Hours, past[i].At, past[i].Instrument = anomaly.Healthy(heard[i], its)
		past[i].Air = anomaly.HealthyAir(past[i].Air, its)
		if room := past[i].Room; len(its) > 0 {
			rooms[room] = anomaly.HealthyAir(rooms[room], its)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(rooms)) {
		past = append(past, anomaly.NodeHours{Room: id, Air: rooms[id]})
	}
	if err := t.models.PublishCalibration(ctx, customer, name, anomaly.Calibrate(past)); err != nil {
		return err
	}
	return t.removeOld(ctx, customer, kept)
}

// removeOld deletes a customer's artifacts of calibration except those to keep and the newest
// calibrations.
func (t *Train) removeOld(ctx context.Context, customer int64, kept map[string]bool) error {
	names, err := t.models.List(ctx, customer)
	if err != nil {
		return err
	}
	calibrations := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, calibrationPrefix) })
	for _, n := range calibrations[max(0, len(calibrations)-calibrationsKept):] {
		kept[n] = true
	}
	return t.models.Delete(ctx, customer, slices.DeleteFunc(names, func(n string) bool {
		return kept[n] || !strings.HasPrefix(n, hoursPrefix) && !strings.HasPrefix(n, calibrationPrefix)
	})...)
}

// dayHours are the hours of a day of some nodes, and the air of their rooms under no node's name.
type dayHours []anomaly.NodeHours

// MarshalBinary implements [encoding.BinaryMarshaler].
func (d dayHours) MarshalBinary() ([]byte, error) {
	var content bytes.Buffer
	if err := gob.NewEncoder(&content).Encode([]anomaly.NodeHours(d)); err != nil {
		return nil, fmt.Errorf("hours: %w", err)
	}
	return content.Bytes(), nil
}

// hoursOf returns the hours of a day, from the artifact where there is one. A day that takes longer to
// read than a delivery may last has one of the nodes that were read, with which the next goes on.
func (t *Train) hoursOf(ctx context.Context, customer int64, nodes []learning.PlacedNode, start time.Time) (dayHours, error) {
	name := hoursPrefix + start.Format("20060102")
	hours, err := t.storedHours(ctx, customer, name)
	if !errors.Is(err, modelstore.ErrNoArtifact) {
		return hours, err
	}
	begun := name + "_begun"
	if hours, err = t.storedHours(ctx, customer, begun); err != nil && !errors.Is(err, modelstore.ErrNoArtifact) {
		return nil, err
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n learning.PlacedNode) bool {
		return slices.ContainsFunc(hours, func(h anomaly.NodeHours) bool { return h.Node == n.ID })
	})
	hours, err = t.readHours(ctx, hours, nodes, start, maxReadings, func(hours dayHours) error {
		// The end of a delivery between the two would lose what all before it have read.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
		defer cancel()
		err := t.models.Delete(ctx, customer, begun)
		if err == nil {
			err = t.models.Write(ctx, customer, begun, hours)
		}
		if errors.Is(err, modelstore.ErrConflict) { // with another instance, which reads the same
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := t.models.Write(ctx, customer, name, hours); err != nil && !errors.Is(err, modelstore.ErrConflict) {
		return nil, err
	}
	return hours, nil
}

func (t *Train) storedHours(ctx context.Context, customer int64, name string) (hours dayHours, err error) {
	content, err := t.models.Artifact(ctx, customer, name)
	if err != nil {
		return nil, err
	}
	if err := gob.NewDecoder(bytes.NewReader(content)).Decode((*[]anomaly.NodeHours)(&hours)); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return hours, nil
}

// readHours adds the hours of a day of some nodes, from at most so many readings at a time, and saves them
// before it reads more. A node that has more readings by itself is cut.
func (t *Train) readHours(
	ctx context.Context, hours dayHours, nodes []learning.PlacedNode, start time.Time, most int, save func(dayHours) error,
) (dayHours, error) {
	for together := maxTogether; len(nodes) > 0; {
		part := nodes[:min(together, len(nodes))]
		refs := make([]readings.NodeRef, len(part))
		for i, n := range part {
			refs[i] = n.NodeRef
		}
		series, rows, err := collect(t.readings.Ranges(ctx, refs, start.Add(-day), start.Add(day)), most)
		if err != nil {
			return nil, err
		}
		if rows == most && len(part) > 1 { // read again with as many nodes as were read whole
			together = max(1, len(series)-1)
			continue
		}
		byName := make(map[string][]reading.Reading, len(series))
		for _, s := range series {
			byName[s.NodeID] = s.Readings
		}
		if hours, nodes = append(hours, replay(part, byName, start)...), nodes[len(part):]; len(nodes) > 0 {
			if err := save(hours); err != nil {
				return nil, err
			}
		}
		together = min(maxTogether, 2*together) // one that sends much makes no small parts of all after it
	}
	return hours, nil
}

// player is a node whose two days are replayed.
type player struct {
	anomaly.Player

	neighbours []*anomaly.Live
	room       *room
	hours      [24]anomaly.Hour
	air        []anomaly.Climate // of the 24 hours
	instrument anomaly.Instrument
}

// room is a room whose nodes are replayed.
type room struct {
	nodes []*anomaly.Live
	now   anomaly.Moves // of most of them
	air   []anomaly.Climate
}

func unheard(start time.Time) []anomaly.Climate {
	air := make([]anomaly.Climate, 24)
	for hour := range air {
		air[hour] = anomaly.Unheard(start.Add(time.Duration(hour) * time.Hour))
	}
	return air
}

// replay replays two days of nodes as detection saw them, and returns the hours of the second.
func replay(nodes []learning.PlacedNode, series map[string][]reading.Reading, start time.Time) []anomaly.NodeHours {
	first, last := anomaly.SlotOf(start.Add(-day)), anomaly.SlotOf(start.Add(day))
	all, placed := make([]player, len(nodes)), make([]anomaly.Placed, len(nodes))
	rooms := map[int64]*room{}
	for i, n := range nodes {
		var stop func()
		all[i].Player, stop = anomaly.NewPlayer(series[n.ID])
		defer stop()
		for j := range all[i].hours {
			all[i].hours[j] = anomaly.Quiet()
		}
		all[i].air = unheard(start)
		if rooms[n.RoomID] == nil {
			rooms[n.RoomID] = &room{air: unheard(start)}
		}
		all[i].room = rooms[n.RoomID]
		all[i].room.nodes = append(all[i].room.nodes, &all[i].Live)
		placed[i] = anomaly.Placed{Room: strconv.FormatInt(n.RoomID, 10), Slots: anomaly.Temperatures(series[n.ID], first, last)}
	}
	past := make([]anomaly.NodeHours, len(nodes))
	for i, neighbours := range anomaly.Neighbours(placed) {
		past[i].Node, past[i].Room = nodes[i].ID, placed[i].Room
		for _, other := range neighbours {
			past[i].Neighbours = append(past[i].Neighbours, nodes[other].ID)
			all[i].neighbours = append(all[i].neighbours, &all[other].Live)
		}
	}
	for now := start.Add(-day); now.Before(start.Add(day)); now = now.Add(tick) {
		for _, r := range rooms {
			if r.now, _ = anomaly.Together(now, r.nodes); !now.Before(start) {
				r.air[int(now.Sub(start)/time.Hour)].Add(r.now)
			}
		}
		for i := range all {
			all[i].advance(now, start)
		}
	}
	for i := range all {
		past[i].Hours, past[i].Air, past[i].Instrument = all[i].hours[:], all[i].air, all[i].instrument
	}
	for _, id := range slices.Sorted(maps.Keys(rooms)) {
		past = append(past, anomaly.NodeHours{Room: strconv.FormatInt(id, 10), Air: rooms[id].air})
	}
	return past
}

func (p *player) advance(now, start time.Time) {
	var around anomaly.Surroundings
	known := false
	p.Play(now.Add(tick), func(w reading.Window, r reading.Reading) {
		moves := p.Move(w, r).Apart(p.room.now)
		if r.Time.Before(start) {
			return
		}
		if !known {
			around, known = p.Around(now, p.neighbours), true
		}
		hour := int(r.Time.Sub(start) / time.Hour)
		p.hours[hour].Add(anomaly.Statistics(w, r, &p.Day, around))
		p.air[hour].Add(moves)
		p.instrument = p.Instrument(w, r)
	})
}
