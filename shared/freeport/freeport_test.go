package freeport

import (
	"fmt"
	"net"
	"testing"
)

func TestFind(t *testing.T) {
	t.Parallel()
	port, err := Find(t.Context())
	if err != nil || port < first || port >= last {
		t.Fatalf("port %d, %v", port, err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprint(":", port))
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
}
