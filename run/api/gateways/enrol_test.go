package gateways

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"testing"

	"coldaisle.dev/shared/must"
)

// TestCheckKey holds that generated keys pass, and none of small order, another form or off the curve. Contract 10.2.
func TestCheckKey(t *testing.T) {
	t.Parallel()
	for seed := range byte(50) {
		public, _ := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)).Public().(ed25519.PublicKey)
		must.Equal(t, fmt.Sprintf("%x passes", public), true, validKey(public))
	}
	refused := [][]byte{nil, make([]byte, 31), bytes.Repeat([]byte{0xee}, 33)}
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
		refused = append(refused, must.Get(hex.DecodeString(text))(t))
	}
	for _, public := range refused {
		must.Equal(t, fmt.Sprintf("%x passes", public), false, validKey(public))
	}
}
