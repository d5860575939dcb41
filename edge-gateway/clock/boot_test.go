package clock

import (
	"testing"

	"coldaisle.dev/shared/must"
)

// TestBootID has machines without an id of their boot, such as a Mac.
func TestBootID(t *testing.T) {
	t.Parallel()
	must.Equal(t, "an id", [16]byte{0x45, 15: 0xff}, bootID("45000000-0000-0000-0000-0000000000ff\n"))
	for _, none := range []string{"", "4500"} {
		must.Equal(t, "who asks twice gets the same", bootID(none), bootID(none))
		must.Equal(t, "it is none", false, bootID(none) == [16]byte{})
	}
}
