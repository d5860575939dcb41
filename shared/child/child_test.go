package child

import (
	"fmt"
	"net"
	"testing"

	"coldaisle.dev/shared/must"
)

func TestPort(t *testing.T) {
	t.Parallel()
	port, err := Port(t.Context())
	must.Hold(t, err == nil && port >= first && port < last, "port %d, %v", port, err)
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprint(":", port)))(t)
	must.Do(t, listener.Close())
}
