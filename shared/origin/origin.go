// Package origin authenticates a message of topic data and dates its reading, for
// functions/ingest and functions/detect.
//
// A message that an enrolled gateway signed belongs to the channel of the gateway's
// customer. Its time is the signed one, or the message is refused. Any other message
// belongs to the open channel; its time is corrected only if it lies in the future.
package origin

import (
	"context"
	"errors"
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/parallel"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/wire"
)

// Bounds of the cache.
const (
	// MaxAge bounds how long a cached key is served: a revocation must be honoured within
	// 15 seconds, and the query needs the rest of that time.
	MaxAge = 10 * time.Second
	// lookupTimeout bounds a query.
	lookupTimeout = 5 * time.Second
	// capacity is how many keys are cached.
	capacity = 20_000
)

// Keys reads the keys of many gateways at once. Those that are not enrolled are
// absent.
type Keys interface {
	GatewayKeys(ctx context.Context, ids []string) (map[string]accounts.GatewayKey, error)
}

// Options of a [Verifier]. The zero value accepts open messages and counts nothing.
type Options struct {
	// RequireEnrolled refuses messages that no enrolled gateway has signed.
	RequireEnrolled bool
	Counters        *logmetrics.Counters
}

// Verifier decodes messages and authenticates their source. Its methods may be
// called from many goroutines.
type Verifier struct {
	options Options
	clock   func() time.Time
	cache   *lru.Cache[string, entry]
	lookups *coalesce.Group[string, entry]
}

type entry struct {
	key       accounts.GatewayKey
	enrolled  bool
	queriedAt time.Time // when the query began
}

// New returns a verifier over the metadata store.
func New(keys Keys, clock func() time.Time, options Options) *Verifier {
	cache, _ := lru.New[string, entry](capacity) // the library refuses only sizes below 1
	return &Verifier{
		options: options, clock: clock,
		cache: cache,
		lookups: coalesce.New(func(ctx context.Context, ids []string) (_ []entry, err error) {
			defer parallel.Recover(&err)
			ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
			defer cancel()
			queriedAt := clock() // before the query, whose result lacks changes made during it
			found, err := keys.GatewayKeys(ctx, ids)
			if err != nil {
				return nil, err
			}
			entries := make([]entry, len(ids))
			for i, id := range ids {
				key, ok := found[id]
				entries[i] = entry{key: key, enrolled: ok, queriedAt: queriedAt}
			}
			return entries, nil
		}, coalesce.Options[string]{}),
	}
}

// Source is where a message comes from: the zero value is the open channel.
type Source struct {
	Channel   reading.Channel
	GatewayID string
	Drill     string // code of the alarm drill that the probe's reading begins; empty for none
}

// Data decodes a message with its window. An error that no retry can remove is marked by
// [push.Permanent]; any other means that the database is unavailable.
func (v *Verifier) Data(ctx context.Context, m push.Message) (wire.Data, Source, error) {
	r, recent, source, err := v.decode(ctx, m)
	return wire.Data{Reading: r, Recent: wire.DecodeWindow(recent)}, source, err
}

// Reading is [Verifier.Data] without the window.
func (v *Verifier) Reading(ctx context.Context, m push.Message) (reading.Reading, Source, error) {
	r, _, source, err := v.decode(ctx, m)
	return r, source, err
}

func (v *Verifier) decode(ctx context.Context, m push.Message) (r reading.Reading, recent []byte, source Source, err error) {
	source, date, err := v.source(ctx, m)
	if err != nil {
		return reading.Reading{}, nil, Source{}, err
	}
	r, recent, err = wire.DecodeReading(m.Data, date)
	if err != nil {
		if !push.IsPermanent(err) {
			err = push.Permanent(push.ReasonMalformed, err)
		}
		return reading.Reading{}, nil, Source{}, err
	}
	r.Channel = source.Channel
	if r.NodeID == reading.ProbeNodeID {
		source.Drill = wire.DrillOf(m.Data)
	}
	// The probe's readings pass: they are no sensor's, and nobody signs them.
	if v.options.RequireEnrolled && r.Channel == reading.Open && r.NodeID != reading.ProbeNodeID {
		err := push.Permanent(push.ReasonUnsigned, errors.New("no enrolled gateway has signed the message"))
		return reading.Reading{}, nil, Source{}, err
	}
	return r, recent, source, nil
}

// source authenticates a message, and returns how its reading is dated.
func (v *Verifier) source(ctx context.Context, m push.Message) (Source, func(time.Time) (time.Time, error), error) {
	claimed, err := wire.ParseOrigin(m.Attributes)
	if err != nil {
		return Source{}, nil, push.Permanent(push.ReasonMalformed, err)
	}
	if !claimed.Signed() {
		return Source{}, v.dateOpen(ctx, m.PublishTime), nil
	}
	gateway, err := v.gateway(ctx, claimed.GatewayID)
	switch {
	case err != nil:
		return Source{}, nil, err
	case !gateway.enrolled:
		return Source{}, nil, push.Permanent(push.ReasonSignature, fmt.Errorf("gateway %s is not enrolled", claimed.GatewayID))
	case gateway.key.Revoked:
		return Source{}, nil, push.Permanent(push.ReasonRevoked, fmt.Errorf("gateway %s is revoked", claimed.GatewayID))
	}
	date := func(stamped time.Time) (time.Time, error) {
		if !claimed.Verify(gateway.key.PublicKey, m.Data) {
			return time.Time{}, push.Permanent(push.ReasonSignature, fmt.Errorf("wrong signature of gateway %s", claimed.GatewayID))
		}
		at, err := reading.SignedTime(stamped, claimed.Age.Duration, m.PublishTime)
		return at, push.Permanent(push.ReasonStale, err)
	}
	return Source{Channel: gateway.key.Channel, GatewayID: claimed.GatewayID}, date, nil
}

// dateOpen dates readings of the open channel and counts those dated ahead.
func (v *Verifier) dateOpen(ctx context.Context, published time.Time) func(time.Time) (time.Time, error) {
	return func(stamped time.Time) (time.Time, error) {
		at := reading.Dated(stamped, published)
		if !stamped.IsZero() && !at.Equal(reading.TruncateTime(stamped)) {
			v.options.Counters.Add(ctx, "readings_clamped", 1)
		}
		return at, nil
	}
}

// gateway returns a gateway's key, at most [MaxAge] old. An unknown gateway is looked up
// each time, because it may just have been enrolled.
func (v *Verifier) gateway(ctx context.Context, id string) (entry, error) {
	if cached, ok := v.cache.Get(id); ok && v.clock().Sub(cached.queriedAt) < MaxAge {
		return cached, nil
	}
	found, err := v.lookups.Do(ctx, id)
	if err != nil {
		return entry{}, fmt.Errorf("key of gateway %s: %w", id, err)
	}
	if found.enrolled {
		v.cache.Add(id, found)
	}
	return found, nil
}
