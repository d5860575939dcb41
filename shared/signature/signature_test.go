package signature_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"testing"

	"filippo.io/edwards25519"

	"coldaisle.dev/shared/signature"
)

// prepared has met the key often enough to have prepared it.
func prepared(tb testing.TB, v *signature.Verifier, public ed25519.PublicKey) {
	tb.Helper()
	for range 20 {
		v.Verify(public, nil, nil, make([]byte, ed25519.SignatureSize))
	}
}

func private(seed uint64) ed25519.PrivateKey {
	chance := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	key := make([]byte, ed25519.SeedSize)
	_, _ = chance.Read(key)
	return ed25519.NewKeyFromSeed(key)
}

// smallPoints are encodings of the eight points of small order, and such that are not
// canonical or are no points.
func smallPoints(tb testing.TB) [][]byte {
	tb.Helper()
	var all [][]byte
	for _, text := range []string{
		"0100000000000000000000000000000000000000000000000000000000000000",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"0000000000000000000000000000000000000000000000000000000000000080",
		"0000000000000000000000000000000000000000000000000000000000000000",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // 0, not canonical
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // 1, not canonical
		"0100000000000000000000000000000000000000000000000000000000000080", // 1, with a sign
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff", // -1, with a sign
		"0200000000000000000000000000000000000000000000000000000000000000", // no point
		"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	} {
		encoded, err := hex.DecodeString(text)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, encoded)
	}
	return all
}

// agree fails when the verifier and crypto/ed25519 do not say the same.
func agree(tb testing.TB, v *signature.Verifier, public ed25519.PublicKey, message, sig []byte) bool {
	tb.Helper()
	want := ed25519.Verify(public, message, sig)
	at := len(message) / 3
	if got := v.Verify(public, message[:at], message[at:], sig); got != want {
		tb.Errorf("key %x, message %x, signature %x: %t, and crypto/ed25519 says %t", public, message, sig, got, want)
	}
	return want
}

// TestRightAndWrongSignatures verifies right signatures of many keys, and those with
// each bit changed, by crypto/ed25519 and by prepared keys.
func TestRightAndWrongSignatures(t *testing.T) {
	t.Parallel()
	v := signature.New()
	for seed := range uint64(10) {
		key := private(seed)
		public, _ := key.Public().(ed25519.PublicKey)
		prepared(t, v, public)
		for length := range 10 {
			message := bytes.Repeat([]byte{byte(seed)}, 30*length)
			sig := ed25519.Sign(key, message)
			if !agree(t, v, public, message, sig) {
				t.Fatal("crypto/ed25519 refuses its own signature")
			}
			for bit := range 512 {
				if bit%40 == length || seed+uint64(length) == 0 {
					sig[bit/8] ^= 1 << (bit % 8)
					agree(t, v, public, message, sig)
					sig[bit/8] ^= 1 << (bit % 8)
				}
			}
			agree(t, v, public, append(slices.Clone(message), 0), sig)
		}
	}
	for _, wrong := range []int{0, 31, 33} {
		if v.Verify(make([]byte, wrong), nil, nil, make([]byte, 64)) {
			t.Errorf("a key of %d bytes verifies", wrong)
		}
	}
	if v.Verify(make([]byte, 32), nil, nil, make([]byte, 63)) {
		t.Error("a short signature verifies")
	}
}

// TestUnusualPoints takes keys and R of small order, mixed order, and in encodings that
// are not canonical, and S at the bounds of its range: implementations of Ed25519 differ
// in these. See Chalkias, Garillot and Nikolaenko, Taming the many EdDSAs, 2020.
func TestUnusualPoints(t *testing.T) {
	t.Parallel()
	order, err := hex.DecodeString("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010")
	if err != nil {
		t.Fatal(err)
	}
	small := smallPoints(t)
	keys := slices.Clone(small)
	for seed := range uint64(8) { // keys of mixed order
		public, _ := private(seed).Public().(ed25519.PublicKey)
		a, errA := new(edwards25519.Point).SetBytes(public)
		b, errB := new(edwards25519.Point).SetBytes(small[seed])
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		keys = append(keys, a.Add(a, b).Bytes())
	}
	below := slices.Clone(order)
	below[0]--
	scalars := [][]byte{make([]byte, 32), order, below, bytes.Repeat([]byte{255}, 32), append(bytes.Repeat([]byte{255}, 31), 15)}
	v := signature.New()
	accepted := 0
	for _, public := range keys {
		prepared(t, v, public)
		for _, r := range keys {
			for _, s := range scalars {
				for message := range 3 {
					if agree(t, v, public, []byte{byte(message)}, slices.Concat(r, s)) {
						accepted++
					}
				}
			}
		}
	}
	if accepted == 0 {
		t.Error("crypto/ed25519 accepts none of them: the test shows nothing")
	}
}

func TestCheckKey(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		public, _ := private(seed).Public().(ed25519.PublicKey)
		if err := signature.CheckKey(public); err != nil {
			t.Errorf("%x: %v", public, err)
		}
	}
	for _, public := range append(smallPoints(t), nil, make([]byte, 31), bytes.Repeat([]byte{0xee}, 33)) {
		if signature.CheckKey(public) == nil {
			t.Errorf("%x is taken", public)
		}
	}
}

// TestManyKeysInTurns meets more keys than are kept.
func TestManyKeysInTurns(t *testing.T) {
	t.Parallel()
	v := signature.New()
	for round := range 3 {
		for seed := range uint64(140) {
			key := private(seed)
			public, _ := key.Public().(ed25519.PublicKey)
			if !agree(t, v, public, []byte{byte(round)}, ed25519.Sign(key, []byte{byte(round)})) {
				t.Fatal("crypto/ed25519 refuses its own signature")
			}
		}
	}
}

// FuzzVerify holds prepared keys against crypto/ed25519.
func FuzzVerify(f *testing.F) {
	v := signature.New()
	f.Add(uint64(1), []byte("message"), []byte{})
	f.Add(uint64(2), []byte{}, bytes.Repeat([]byte{1}, 64))
	f.Fuzz(func(t *testing.T, seed uint64, message, change []byte) {
		key := private(seed % 4)
		public, _ := key.Public().(ed25519.PublicKey)
		prepared(t, v, public)
		sig := ed25519.Sign(key, message)
		for i, b := range change {
			sig[i%len(sig)] ^= b
		}
		agree(t, v, public, message, sig)
	})
}

// BenchmarkVerify verifies messages of a reading's size by a prepared key and by the
// standard library.
func BenchmarkVerify(b *testing.B) {
	key := private(1)
	public, _ := key.Public().(ed25519.PublicKey)
	message := make([]byte, 2400)
	sig := ed25519.Sign(key, message)
	v := signature.New()
	prepared(b, v, public)
	b.Run("prepared", func(b *testing.B) {
		for b.Loop() {
			if !v.Verify(public, message[:80], message[80:], sig) {
				b.Fatal("refused")
			}
		}
	})
	b.Run("crypto/ed25519", func(b *testing.B) {
		for b.Loop() {
			if !ed25519.Verify(public, message, sig) {
				b.Fatal("refused")
			}
		}
	})
}
