package overview

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/store/incidents"
)

const (
	// minAge is the age from which an answer is rebuilt for new readings alone, so that a
	// customer's pages share one. Any other change shows at once.
	minAge = time.Second
	// maxAge bounds the age of an answer, for changes that no version covers: late readings
	// in the sparklines, and since when a sensor is silent.
	maxAge = time.Minute
)

// view is the last answer to one customer, with the state that it was built from.
type view struct {
	turn chan struct{} // semaphore that guards the rest

	version incidents.LiveVersion
	windows []incidents.Maintenance
	inside  []bool // which of the windows cover the time
	probe   incident.Probe
	late    bool // the probe, when the answer was written
	built   time.Time
	until   time.Time // when a sensor falls silent if nothing comes, or the answer is too old
	day     day
	body    []byte
	tag     string
}

func newView() *view { return &view{turn: make(chan struct{}, 1)} }

// refresh rebuilds the view if it is outdated.
func (h *Handlers) refresh(ctx context.Context, v *view, customer int64, now time.Time) error {
	seen, err := incidents.New(h.store).Probe(ctx)
	if err != nil {
		return err
	}
	// Before all else is read: what changes meanwhile, or is due, changes the next version.
	version, err := incidents.New(h.store).LiveVersion(ctx, customer)
	if err != nil {
		return err
	}
	sameProbe := seen.LateAt.Equal(v.probe.LateAt) && seen.Late(now) == v.late
	v.probe = seen
	if sameProbe && v.isOf(version, now) {
		return nil
	}
	v.tag = "" // until it is complete
	v.late, v.version, v.built, v.until = seen.Late(now), version, now, now.Add(maxAge)
	return h.build(ctx, v, customer, now)
}

// isOf reports whether the view is still valid for a version and a time.
func (v *view) isOf(version incidents.LiveVersion, now time.Time) bool {
	return v.tag != "" && version.Rest == v.version.Rest && now.Before(v.until) && !now.Before(v.built) &&
		(version.Readings == v.version.Readings || now.Sub(v.built) < minAge) && slices.Equal(v.insideAt(now), v.inside)
}

func (v *view) insideAt(now time.Time) []bool {
	return rest.List(v.windows, func(m incidents.Maintenance) bool {
		_, _, inside := m.Window.At(now)
		return inside
	})
}

func (v *view) head(now time.Time) Head {
	head := Head{Time: rest.UTC(now), Probe: probeState{Late: v.probe.Late(now), LatenessS: v.probe.Lateness(now).Seconds()}}
	if !v.probe.Published.IsZero() {
		head.Probe.Published = new(rest.UTC(v.probe.Published))
	}
	return head
}

// encode sets the body and its tag, which also covers whether the service is late.
func (v *view) encode(body Body) error {
	text, err := rest.Encode(body)
	if err != nil {
		return err
	}
	hash := sha256.New()
	_, _ = hash.Write(text)
	if v.late {
		_, _ = hash.Write([]byte(v.probe.Published.String()))
	}
	v.body, v.tag = text, `W/"`+hex.EncodeToString(hash.Sum(nil)[:12])+`"`
	return nil
}

// The states of a sensor.
const (
	stateOK         = "ok"
	stateWarning    = "warning"
	stateCritical   = "critical"
	stateSilent     = "silent"
	stateLate       = "late"
	stateUnreported = "unreported"
)

// stateOf returns the worst state that applies to a sensor with a worst lasting severity, and brings
// v.until forward to the time at which the sensor would fall silent.
func (v *view) stateOf(l incidents.LiveSensor, severity incident.Severity, now time.Time) string {
	overdue := false
	if l.Timestamp != nil {
		for _, from := range []time.Time{*l.Timestamp, v.probe.LateAt} {
			if due := incident.SilentFrom(from, l.Interval); due.After(now) && due.Before(v.until) {
				v.until = due
			}
		}
		overdue = !now.Before(incident.SilentFrom(*l.Timestamp, l.Interval))
	}
	switch {
	case severity == incident.Critical:
		return stateCritical
	case overdue && v.probe.Silent(*l.Timestamp, l.Interval, now):
		return stateSilent
	case severity != "":
		return stateWarning
	case l.Timestamp == nil:
		return stateUnreported
	case overdue:
		return stateLate
	default:
		return stateOK
	}
}
