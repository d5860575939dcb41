package origin_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/origin"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/wire"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

var errAway = errors.New("database is away")

// keys is a database of gateways that a test changes.
type keys struct {
	mu    sync.Mutex
	of    map[string]accounts.GatewayKey
	err   error
	calls int
}

func (k *keys) GatewayKeys(_ context.Context, ids []string) (map[string]accounts.GatewayKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	found := map[string]accounts.GatewayKey{}
	for _, id := range ids {
		if key, ok := k.of[id]; ok {
			found[id] = key
		}
	}
	return found, k.err
}

func (k *keys) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

func private(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func public(seed byte) ed25519.PublicKey {
	key, _ := private(seed).Public().(ed25519.PublicKey)
	return key
}

func enrolled() *keys {
	return &keys{of: map[string]accounts.GatewayKey{
		"gw-a": {Channel: 1, PublicKey: public(1)},
		"gw-b": {Channel: 2, PublicKey: public(2)},
		"gw-r": {Channel: 1, PublicKey: public(3), Revoked: true},
	}}
}

// message is a reading as a gateway publishes it; without a key it is not signed.
func message(t *testing.T, gateway string, key ed25519.PrivateKey, at time.Time, age wire.Age, published time.Time) push.Message {
	t.Helper()
	data := must.Get(wire.EncodeData(wire.Data{Reading: reading.Reading{NodeID: "n1", MessageID: "m", Time: at, Temperature: 21, Humidity: 40}}))(t)
	m := push.Message{ID: "1", Data: data, PublishTime: published, Attributes: map[string]string{wire.NodeIDAttribute: "n1"}}
	if key != nil {
		maps.Copy(m.Attributes, wire.SignData(key, gateway, at, age, data))
	}
	return m
}

// foreign is a reading that another program than ours signs, over its timestamp as in the data (contract 10.3).
func foreign(stamp string) push.Message {
	data := []byte(`{"timestamp":"` + stamp + `","node_id":"n1","message_id":"m","temperature":21,"humidity":40}`)
	signature := ed25519.Sign(private(1), append([]byte("coldaisle/data/1\ngw-a\n"+stamp+"\n\n"), data...))
	return push.Message{ID: "1", Data: data, PublishTime: noon, Attributes: map[string]string{
		wire.GatewayIDAttribute: "gw-a", wire.SignatureAttribute: base64.StdEncoding.EncodeToString(signature),
	}}
}

func known(d time.Duration) wire.Age { return wire.Age{Duration: d, Known: true} }

// TestOrigin shows contract 10.4.
func TestOrigin(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		message   push.Message
		require   bool
		want      origin.Source
		wantTime  time.Time
		permanent bool
	}{
		"signed":                       {message: message(t, "gw-a", private(1), noon, known(0), noon), want: origin.Source{Channel: 1, GatewayID: "gw-a"}, wantTime: noon},
		"signed without an age":        {message: message(t, "gw-a", private(1), noon, wire.Age{}, noon), want: origin.Source{Channel: 1, GatewayID: "gw-a"}, wantTime: noon},
		"signed, waited a day":         {message: message(t, "gw-b", private(2), noon.Add(-day), known(day), noon), want: origin.Source{Channel: 2, GatewayID: "gw-b"}, wantTime: noon.Add(-day)},
		"signed, 2 minutes on the way": {message: message(t, "gw-a", private(1), noon, known(0), noon.Add(2*time.Minute)), want: origin.Source{Channel: 1, GatewayID: "gw-a"}, wantTime: noon},
		"signed, longer on the way":    {message: message(t, "gw-a", private(1), noon, known(0), noon.Add(2*time.Minute+time.Millisecond)), permanent: true},
		"signed by a clock ahead":      {message: message(t, "gw-a", private(1), noon.Add(3*time.Minute), known(0), noon), permanent: true},
		"replayed a day later":         {message: message(t, "gw-a", private(1), noon, known(0), noon.Add(day)), permanent: true},
		"by another's key":             {message: message(t, "gw-a", private(2), noon, known(0), noon), permanent: true},
		"of a revoked gateway":         {message: message(t, "gw-r", private(3), noon, known(0), noon), permanent: true},
		"of no gateway":                {message: message(t, "gw-x", private(1), noon, known(0), noon), permanent: true},
		"signed without a timestamp":   {message: message(t, "gw-a", private(1), time.Time{}, known(0), noon), permanent: true},
		"signed, with zeros":           {message: foreign("2026-11-20T12:00:00.000Z"), want: origin.Source{Channel: 1, GatewayID: "gw-a"}, wantTime: noon},
		"signed, with nanoseconds":     {message: foreign("2026-11-20T12:00:00.120000001Z"), want: origin.Source{Channel: 1, GatewayID: "gw-a"}, wantTime: noon.Add(120 * time.Millisecond)},
		"signed, with an offset":       {message: foreign("2026-11-20T13:00:00+01:00"), want: origin.Source{Channel: 1, GatewayID: "gw-a"}, wantTime: noon},
		"open":                         {message: message(t, "", nil, noon, wire.Age{}, noon), wantTime: noon},
		"open, where that is closed":   {message: message(t, "", nil, noon, wire.Age{}, noon), require: true, permanent: true},
		"the probe, where that is closed": {
			message: push.Message{Data: []byte(`{"node_id":"coldaisle.probe","message_id":"m","temperature":0,"humidity":0}`), PublishTime: noon},
			require: true, wantTime: noon,
		},
		"the probe, with a drill": {
			message: push.Message{Data: []byte(`{"node_id":"coldaisle.probe","message_id":"m","temperature":0,"humidity":0,"drill":"d"}`), PublishTime: noon},
			want:    origin.Source{Drill: "d"}, wantTime: noon,
		},
		"a node, with a drill": {
			message:  push.Message{Data: []byte(`{"node_id":"n1","message_id":"m","temperature":0,"humidity":0,"drill":"d"}`), PublishTime: noon},
			wantTime: noon,
		},
		"open and says it is the probe": {
			message: push.Message{
				Data: []byte(`{"node_id":"n1","message_id":"m","temperature":0,"humidity":0}`), PublishTime: noon,
				Attributes: map[string]string{wire.NodeIDAttribute: "coldaisle.probe"},
			},
			require: true, permanent: true,
		},
		"signed, where open is closed":  {message: message(t, "gw-a", private(1), noon, known(0), noon), require: true, want: origin.Source{Channel: 1, GatewayID: "gw-a"}, wantTime: noon},
		"open, old":                     {message: message(t, "", nil, noon.Add(-day), wire.Age{}, noon), wantTime: noon.Add(-day)},
		"open, ahead":                   {message: message(t, "", nil, noon.Add(day), wire.Age{}, noon), wantTime: noon},
		"open, with a malformed age":    {message: push.Message{Data: []byte(`{}`), Attributes: map[string]string{wire.AgeAttribute: "soon"}}, permanent: true},
		"open, no reading":              {message: push.Message{Data: []byte(`{}`)}, permanent: true},
		"signature without its gateway": {message: push.Message{Data: []byte(`{}`), Attributes: map[string]string{wire.SignatureAttribute: "x"}}, permanent: true},
	} {
		v := origin.New(enrolled(), time.Now, origin.Options{RequireEnrolled: c.require})
		data, source, err := v.Data(t.Context(), c.message)
		r := data.Reading
		must.Hold(t, push.IsPermanent(err) == c.permanent && (err != nil) == c.permanent, "%s: %v", name, err)
		must.Hold(t, source == c.want && r.Time.Equal(c.wantTime) && r.Channel == c.want.Channel, "%s: %+v from %+v", name, r, source)
	}
}

// TestRevocationIsHonoured shows contract 10.4: within 15 seconds, and a message may pass later when nobody can tell.
func TestRevocationIsHonoured(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now := noon
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	advance := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	database := enrolled()
	v := origin.New(database, clock, origin.Options{})
	signed := message(t, "gw-a", private(1), noon, known(0), noon)
	check := func() error { _, _, err := v.Data(t.Context(), signed); return err }
	for range 3 {
		must.Do(t, check())
	}
	must.Equal(t, "queries for one gateway", 1, database.calls)
	database.set(func() { database.of["gw-a"] = accounts.GatewayKey{Channel: 1, PublicKey: public(1), Revoked: true} })
	advance(origin.MaxAge)
	must.Equal(t, "10 seconds after its revocation it is refused for good", true, push.IsPermanent(check()))
	database.set(func() { database.err = errAway })
	advance(15 * time.Second)
	err := check()
	must.Hold(t, errors.Is(err, errAway) && !push.IsPermanent(err), "while the database is away: %v", err)
	unknown := message(t, "gw-n", private(4), noon, known(0), noon)
	_, _, err = v.Data(t.Context(), unknown)
	must.Fail(t, "a gateway that was never seen, while the database is away", err, errAway)
	database.set(func() { database.err = nil })
	_, _, err = v.Data(t.Context(), unknown)
	must.Hold(t, push.IsPermanent(err), "a gateway that is not enrolled: %v", err)
	database.set(func() { database.of["gw-n"] = accounts.GatewayKey{Channel: 3, PublicKey: public(4)} })
	_, source, err := v.Data(t.Context(), unknown)
	must.Hold(t, err == nil && source.Channel == 3, "enrolled this moment: %+v, %v", source, err)
}

// broken is a database whose client panics.
type broken struct{}

func (broken) GatewayKeys(context.Context, []string) (map[string]accounts.GatewayKey, error) {
	panic("nil map")
}

func TestPanicIsAnError(t *testing.T) {
	t.Parallel()
	verifier := origin.New(broken{}, func() time.Time { return noon }, origin.Options{})
	_, _, err := verifier.Reading(t.Context(), message(t, "gw-a", private(1), noon, known(0), noon))
	must.Hold(t, push.Refused(err) && !push.IsPermanent(err), "%v", err)
}
