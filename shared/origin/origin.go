// Package origin tells of a message of topic data whose it is and when its reading
// was taken: the one answer that functions/ingest and functions/detect go by.
//
// A message that an enrolled gateway signed is in the channel of the gateway's
// customer. Its time is the one that was signed, or the message is refused. Any
// other is in the open channel, and its time is only kept from lying ahead. What a
// message says of itself is never believed further than its signature goes.
package origin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/signature"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/wire"
)

// Bounds of what is cached.
const (
	// MaxAge is how old a cached key may be: a revocation must be honoured within 15
	// seconds, and the query needs the rest of that time.
	MaxAge = 10 * time.Second
	// lookupTimeout bounds a query.
	lookupTimeout = 5 * time.Second
	// capacity is how many keys are cached.
	capacity = 20_000
)

// Keys reads the keys of many gateways at once. Those that are not enrolled are
// absent.
type Keys interface {
	GatewayKeys(ctx context.Context, ids []string) (map[string]store.GatewayKey, error)
}

// Options change what a [Verifier] takes. The zero value takes open messages and
// counts nothing.
type Options struct {
	// RequireEnrolled refuses what no enrolled gateway has signed.
	RequireEnrolled bool
	Counters        *logmetrics.Counters
}

// Verifier decodes messages and says where they come from. Its methods may be
// called from many goroutines.
type Verifier struct {
	options Options
	clock   func() time.Time
	cache   *expirable.LRU[string, entry]
	lookups *coalesce.Group[string, entry]

	signatures *signature.Verifier
}

type entry struct {
	key      store.GatewayKey
	enrolled bool
	asked    time.Time // when the query began
}

// New returns a verifier over the metadata store.
func New(keys Keys, clock func() time.Time, options Options) *Verifier {
	return &Verifier{
		options: options, clock: clock, signatures: signature.New(),
		cache: expirable.NewLRU[string, entry](capacity, nil, MaxAge),
		lookups: coalesce.New(func(ctx context.Context, ids []string) ([]entry, error) {
			ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
			defer cancel()
			asked := clock() // before the query: what changes during it is not in its result
			found, err := keys.GatewayKeys(ctx, ids)
			if err != nil {
				return nil, err
			}
			entries := make([]entry, len(ids))
			for i, id := range ids {
				key, ok := found[id]
				entries[i] = entry{key: key, enrolled: ok, asked: asked}
			}
			return entries, nil
		}, coalesce.Options[string]{}),
	}
}

// Source is where a message comes from: the zero value is the open channel.
type Source struct {
	Channel   reading.Channel
	GatewayID string
}

// Data decodes a message with its window. What cannot pass is marked by
// [push.Permanent]; any other error may pass, since the database is away.
func (v *Verifier) Data(ctx context.Context, m push.Message) (wire.Data, Source, error) {
	source, date, err := v.source(ctx, m)
	if err != nil {
		return wire.Data{}, Source{}, err
	}
	d, err := wire.DecodeDataDated(m.Data, date)
	if err != nil {
		return wire.Data{}, Source{}, v.refused(ctx, err)
	}
	d.Reading.Channel = source.Channel
	if err := v.admit(d.Reading); err != nil {
		return wire.Data{}, Source{}, err
	}
	return d, source, nil
}

// Reading is [Verifier.Data] without the window, which costs most of the time.
func (v *Verifier) Reading(ctx context.Context, m push.Message) (reading.Reading, Source, error) {
	source, date, err := v.source(ctx, m)
	if err != nil {
		return reading.Reading{}, Source{}, err
	}
	r, err := wire.DecodeReadingDated(m.Data, date)
	if err != nil {
		return reading.Reading{}, Source{}, v.refused(ctx, err)
	}
	r.Channel = source.Channel
	if err := v.admit(r); err != nil {
		return reading.Reading{}, Source{}, err
	}
	return r, source, nil
}

// admit refuses a reading of the open channel where that is closed. The probe's are
// no sensor's, and nobody signs them.
func (v *Verifier) admit(r reading.Reading) error {
	if v.options.RequireEnrolled && r.Channel == reading.Open && r.NodeID != reading.ProbeNodeID {
		return push.Permanent(push.ReasonUnsigned, errors.New("no enrolled gateway has signed the message"))
	}
	return nil
}

// refused marks the error of a message that cannot be decoded, unless it is marked.
func (v *Verifier) refused(ctx context.Context, err error) error {
	if errors.Is(err, reading.ErrStale) {
		v.options.Counters.Add(ctx, "readings_stale", 1)
	}
	if push.IsPermanent(err) {
		return err
	}
	return push.Permanent(push.ReasonMalformed, err)
}

// source finds out where a message comes from, and how its reading is dated.
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
		if !claimed.Verify(v.signatures, gateway.key.PublicKey, stamped, m.Data) {
			return time.Time{}, push.Permanent(push.ReasonSignature, fmt.Errorf("wrong signature of gateway %s", claimed.GatewayID))
		}
		at, err := reading.SignedTime(stamped, claimed.Age.Duration, m.PublishTime)
		return at, push.Permanent(push.ReasonStale, err)
	}
	return Source{Channel: gateway.key.Channel, GatewayID: claimed.GatewayID}, date, nil
}

// dateOpen dates a reading of the open channel and counts those that lay ahead.
func (v *Verifier) dateOpen(ctx context.Context, published time.Time) func(time.Time) (time.Time, error) {
	return func(stamped time.Time) (time.Time, error) {
		at := reading.Dated(stamped, published)
		if !stamped.IsZero() && !at.Equal(reading.TruncateTime(stamped)) {
			v.options.Counters.Add(ctx, "readings_clamped", 1)
		}
		return at, nil
	}
}

// gateway returns a gateway's key, at most [MaxAge] old. An unknown gateway asks the
// database each time: it may have been enrolled this moment.
func (v *Verifier) gateway(ctx context.Context, id string) (entry, error) {
	if cached, ok := v.cache.Get(id); ok && v.clock().Sub(cached.asked) < MaxAge {
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
