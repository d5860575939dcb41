package wire_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// key makes the same key of a byte each time.
func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func public(k ed25519.PrivateKey) ed25519.PublicKey {
	public, _ := k.Public().(ed25519.PublicKey)
	return public
}

func encodedReading(tb testing.TB) (reading.Reading, []byte) {
	tb.Helper()
	r := reading.Reading{NodeID: "n1", MessageID: "ab", Time: published, Temperature: 21.5, Humidity: 40}
	data := must.Get(wire.EncodeData(wire.Data{Reading: r}))(tb)
	return r, data
}

func TestSignedDataIsVerified(t *testing.T) {
	t.Parallel()
	r, data := encodedReading(t)
	for _, age := range []wire.Age{{Duration: 90 * time.Second, Known: true}, {Known: true}, {}} {
		attributes := wire.SignData(key(1), "gw-abc", r.Time, age, data)
		origin := must.Get(wire.ParseOrigin(attributes))(t)
		must.Hold(t, origin.Signed() && origin.Age == age && origin.Verify(public(key(1)), r.Time, data),
			"%+v of %v is not verified", origin, attributes)
		must.Hold(t, !origin.Verify(public(key(2)), r.Time, data) && !origin.Verify(nil, r.Time, data),
			"verified by another key")
		must.Hold(t, !origin.Verify(public(key(1)), r.Time.Add(time.Microsecond), data),
			"verified for another time")
		for change, value := range map[string]string{wire.AgeAttribute: "1", wire.GatewayIDAttribute: "gw-abd"} {
			altered := maps.Clone(attributes)
			altered[change] = value
			o, err := wire.ParseOrigin(altered)
			must.Hold(t, err != nil || !o.Verify(public(key(1)), r.Time, data), "verified with %s altered", change)
		}
	}
}

// TestSignedBytes shows contract 10.3: gateways in the field sign exactly these bytes.
func TestSignedBytes(t *testing.T) {
	t.Parallel()
	r, data := encodedReading(t)
	origin := must.Get(wire.ParseOrigin(wire.SignData(key(1), "gw-abc", r.Time, wire.Age{Duration: 1500 * time.Millisecond, Known: true}, data)))(t)
	text := "coldaisle/data/1\ngw-abc\n" + published.Format(time.RFC3339Nano) + "\n1500\n" + string(data)
	must.Hold(t, ed25519.Verify(public(key(1)), []byte(text), origin.Signature), "the signature is not of\n%s", text)
}

func TestOriginRefuses(t *testing.T) {
	t.Parallel()
	r, data := encodedReading(t)
	good := wire.SignData(key(1), "gw-abc", r.Time, wire.Age{Known: true}, data)
	for name, change := range map[string][2]string{
		"no gateway":            {wire.GatewayIDAttribute, ""},
		"no signature":          {wire.SignatureAttribute, ""},
		"short signature":       {wire.SignatureAttribute, "YWJj"},
		"signature not base64":  {wire.SignatureAttribute, strings.Repeat("!", 88)},
		"not the id of one":     {wire.GatewayIDAttribute, "gw-a\nb"},
		"age below zero":        {wire.AgeAttribute, "-1"},
		"age with a sign":       {wire.AgeAttribute, "+1"},
		"age with a zero ahead": {wire.AgeAttribute, "01"},
		"age not a number":      {wire.AgeAttribute, "soon"},
		"age of a century":      {wire.AgeAttribute, "3155760000000"},
	} {
		attributes := maps.Clone(good)
		attributes[change[0]] = change[1]
		must.Fail(t, name, must.Err(wire.ParseOrigin(attributes)), wire.ErrOrigin)
	}
	o := must.Get(wire.ParseOrigin(map[string]string{"node_id": "n1"}))(t)
	must.Hold(t, !o.Signed() && !o.Age.Known, "an open message: %+v", o)
}

func TestSignedStatus(t *testing.T) {
	t.Parallel()
	want := wire.StatusRequest{
		GatewayID: "gw-abc", Nonce: "n", BootID: "b", Sequence: 7, SentAt: published, Version: "1.2.0", Role: "primary",
		ClockOffsetMS: -86_400_000, OutboxReadings: 12,
		Nodes: []wire.StatusNode{{NodeID: "n1", LastHeartbeat: published}, {NodeID: "n2", LastReading: published}},
	}
	signed := must.Get(wire.SignStatus(key(1), want))(t)
	must.Equal(t, "after a round trip", want, must.Get(signed.Verify(public(key(1))))(t))
	must.Fail(t, "verified by another key", must.Err(signed.Verify(public(key(2)))), wire.ErrSignature)
	// A signature of data is none of a status, however the two are put together.
	data := wire.SignData(key(1), "gw-abc", published, wire.Age{}, signed.Request)
	origin := must.Get(wire.ParseOrigin(data))(t)
	crossed := wire.SignedStatus{GatewayID: "gw-abc", Request: signed.Request, Signature: origin.Signature}
	must.Hold(t, must.Err(crossed.Verify(public(key(1)))) != nil, "a signature of data was taken for one of a status")
}

func TestStatusRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*wire.StatusRequest){
		"no nonce":       func(r *wire.StatusRequest) { r.Nonce = "" },
		"no boot":        func(r *wire.StatusRequest) { r.BootID = "" },
		"sequence":       func(r *wire.StatusRequest) { r.Sequence = 0 },
		"outbox":         func(r *wire.StatusRequest) { r.OutboxReadings = -1 },
		"offset":         func(r *wire.StatusRequest) { r.ClockOffsetMS = math.MaxInt64 },
		"offset before":  func(r *wire.StatusRequest) { r.ClockOffsetMS = math.MinInt64 },
		"gateway":        func(r *wire.StatusRequest) { r.GatewayID = "abc" },
		"control":        func(r *wire.StatusRequest) { r.Version = "1\x00" },
		"long":           func(r *wire.StatusRequest) { r.Role = strings.Repeat("a", 65) },
		"node":           func(r *wire.StatusRequest) { r.Nodes = []wire.StatusNode{{NodeID: "a b"}} },
		"too many nodes": func(r *wire.StatusRequest) { r.Nodes = make([]wire.StatusNode, wire.MaxStatusNodes+1) },
	} {
		r := wire.StatusRequest{GatewayID: "gw-abc", Nonce: "n", BootID: "b", Sequence: 1}
		change(&r)
		signed := must.Get(wire.SignStatus(key(1), r))(t)
		must.Fail(t, name, must.Err(signed.Verify(public(key(1)))), wire.ErrGateway)
	}
}

// TestMostThatIsTaken shows the bounds of a status and of an age from within.
func TestMostThatIsTaken(t *testing.T) {
	t.Parallel()
	status := wire.StatusRequest{
		GatewayID: "gw-" + strings.Repeat("a", 37), Nonce: strings.Repeat("~", 64), BootID: "b", Sequence: 1, Version: "1 2",
		Nodes: []wire.StatusNode{{NodeID: "n1", Name: strings.Repeat("ä", wire.MaxNodeName)}},
	}
	for _, sign := range []int64{1, -1} {
		status.ClockOffsetMS = sign * 200 * 366 * 86_400_000
		must.Do(t, status.Validate())
		status.ClockOffsetMS += sign
		must.Equal(t, "a clock further off is refused", true, errors.Is(status.Validate(), wire.ErrGateway))
		status.ClockOffsetMS = 0
	}
	full := status
	full.Nodes = slices.Repeat(status.Nodes, wire.MaxStatusNodes)
	must.Do(t, full.Validate())
	full.Nodes = append(full.Nodes, status.Nodes...)
	must.Equal(t, "a node more is refused", true, errors.Is(full.Validate(), wire.ErrGateway))
	status.Nodes[0].Name += "a"
	must.Fail(t, "a longer name", status.Validate(), wire.ErrGateway)
	must.Fail(t, "a longer id", wire.ValidateGatewayID("gw-"+strings.Repeat("a", 38)), wire.ErrGateway)
	const most = "316224000000" // ten years, in milliseconds
	o := must.Get(wire.ParseOrigin(map[string]string{wire.AgeAttribute: most}))(t)
	must.Equal(t, "age", 10*366*24*time.Hour, o.Age.Duration)
	must.Fail(t, "an age above", must.Err(wire.ParseOrigin(map[string]string{wire.AgeAttribute: "316224000001"})), wire.ErrOrigin)
}

// FuzzSignedData holds that nothing but the signed message itself is verified.
func FuzzSignedData(f *testing.F) {
	r, data := encodedReading(f)
	good := wire.SignData(key(1), "gw-abc", r.Time, wire.Age{Duration: time.Second, Known: true}, data)
	f.Add(good[wire.GatewayIDAttribute], good[wire.AgeAttribute], good[wire.SignatureAttribute], data)
	f.Add("", "1000", "", data)
	f.Fuzz(func(t *testing.T, gateway, age, signature string, data []byte) {
		attributes := map[string]string{wire.GatewayIDAttribute: gateway, wire.AgeAttribute: age, wire.SignatureAttribute: signature}
		origin, err := wire.ParseOrigin(attributes)
		if err != nil {
			return
		}
		if origin.Age.Known && strconv.FormatInt(origin.Age.Duration.Milliseconds(), 10) != age {
			t.Fatalf("age %q was read as %v", age, origin.Age.Duration)
		}
		decoded, err := wire.DecodeData(data, published)
		if err != nil || !origin.Signed() || !origin.Verify(public(key(1)), decoded.Reading.Time, data) {
			return
		}
		if !maps.Equal(attributes, good) {
			t.Fatalf("verified %v", attributes)
		}
	})
}

// FuzzSignedStatus holds that what is accepted is valid and was signed.
func FuzzSignedStatus(f *testing.F) {
	good := must.Get(wire.SignStatus(key(1), wire.StatusRequest{GatewayID: "gw-abc", Nonce: "n", BootID: "b", Sequence: 1}))(f)
	f.Add(good.GatewayID, good.Request, good.Signature)
	f.Fuzz(func(t *testing.T, gateway string, request, signature []byte) {
		accepted, err := wire.SignedStatus{GatewayID: gateway, Request: request, Signature: signature}.Verify(public(key(1)))
		if err != nil {
			return
		}
		if err := accepted.Validate(); err != nil || gateway != good.GatewayID || !bytes.Equal(request, good.Request) {
			t.Fatalf("accepted %s as %+v, %v", request, accepted, err)
		}
	})
}
