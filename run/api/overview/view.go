package overview

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// minAge is the age at which an answer is rebuilt, so that a customer's pages share one. A
// person's change shows at once.
const minAge = time.Second

// view is the last answer to one customer, with the state that it was built from.
type view struct {
	turn chan struct{} // semaphore that guards the rest

	version string
	probe   incident.Probe
	built   time.Time
	day     day
	body    []byte
	tag     string
}

func (h *Handlers) refresh(ctx context.Context, v *view, customer int64, now time.Time) error {
	var err error
	if v.probe, err = incidents.New(h.store).Probe(ctx); err != nil {
		return err
	}
	// Read before everything else, so that a change during the reading gets another version.
	version, err := incidents.New(h.store).LiveVersion(ctx, customer)
	if err != nil {
		return err
	}
	if age := now.Sub(v.built); v.tag != "" && version == v.version && age >= 0 && age < minAge {
		return nil
	}
	v.tag = "" // until it is complete
	v.version, v.built = version, now
	return h.build(ctx, v, customer, now)
}

func (v *view) head(now time.Time) Head {
	return Head{Time: rest.UTC(now), Probe: probeState{
		Late: v.probe.Late(now), LatenessS: v.probe.Lateness(now).Seconds(), Published: rest.OptionalUTC(store.OrNull(v.probe.Published)),
	}}
}

// encode sets the body and its tag, which also covers whether the service is late.
func (v *view) encode(body Body, late bool) error {
	text, err := rest.Encode(body)
	if err != nil {
		return err
	}
	hash := sha256.New()
	_, _ = hash.Write(text)
	if late {
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

// stateOf returns the worst state that applies to a sensor with a worst lasting severity.
func stateOf(l incidents.LiveSensor, severity incident.Severity, probe incident.Probe, now time.Time) string {
	switch {
	case severity == incident.Critical:
		return stateCritical
	case l.Silent(probe, now):
		return stateSilent
	case severity != "":
		return stateWarning
	case l.Timestamp == nil:
		return stateUnreported
	case !l.Reports(now):
		return stateLate
	default:
		return stateOK
	}
}
