package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"

	"coldaisle.dev/shared/reading"
)

// Live holds the readings of the gateway's nodes, for the watch on the same machine. Values are
// as measured: only the service knows the corrections.
type Live struct {
	Time    time.Time  `json:"time"`             // by the gateway's clock, which dates readings
	Standby bool       `json:"standby,omitzero"` // another gateway of the pair has the name
	Uplink  string     `json:"uplink,omitzero"`  // why Pub/Sub is unavailable
	Nodes   []LiveNode `json:"nodes"`            // that have sent a reading, by their ids; at most LivePage
}

// LivePage is the most nodes of an answer: the last hour of a large site is more than a client takes at once.
const LivePage = 500

// LiveNode is a node and its readings of the last hour.
type LiveNode struct {
	NodeID string      `json:"node_id"`
	Points []LivePoint `json:"points"` // in order of their time
}

// LivePoint is a reading; a value that it lacks is null.
type LivePoint struct {
	Time        time.Time `json:"time"`
	Temperature *float64  `json:"temperature"` // °C
	Humidity    *float64  `json:"humidity"`    // %
}

func (n *nodeTable) live(since time.Time, after string) []LiveNode {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := make([]LiveNode, 0, LivePage)
	for _, id := range slices.Sorted(maps.Keys(n.known)) {
		if len(found) == LivePage {
			break
		}
		known := n.known[id]
		if id <= after || len(known.window.entries) == 0 {
			continue
		}
		node := LiveNode{NodeID: id, Points: []LivePoint{}}
		for _, e := range known.window.entries {
			if at := timeOfMicros(e.at); at.After(since) {
				node.Points = append(node.Points, LivePoint{Time: at, Temperature: reading.Pointer(valueOf(e.temperature)), Humidity: reading.Pointer(valueOf(e.humidity))})
			}
		}
		found = append(found, node)
	}
	return found
}

// LiveHandler answers GET /live?since=TIME&after=NODE, for the watch, on a unix socket whose owner and
// mode say who may open it.
func (g *Gateway) LiveHandler(standby func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, r *http.Request) {
		since, _ := time.Parse(time.RFC3339Nano, r.URL.Query().Get("since")) // zero for another text
		live := Live{Time: g.sender.clock().UTC(), Standby: standby(), Nodes: g.nodes.live(since, r.URL.Query().Get("after"))}
		if down, _, reason := g.sender.uplink.state(); down {
			live.Uplink = reason
		}
		write(w, http.StatusOK, live)
	})
	return mux
}

// ListenLocal opens a socket for this user alone, and replaces one that an earlier process left.
func ListenLocal(ctx context.Context, path string) (net.Listener, error) {
	found, err := os.Lstat(path)
	switch {
	case err == nil && found.Mode().Type() != fs.ModeSocket:
		err = fmt.Errorf("%s is no socket", path)
	case err == nil:
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("replace a socket: %w", err)
	}
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on this machine: %w", err)
	}
	return listener, nil
}

// LocalClient returns a client that sends every request to a unix socket, whatever its host.
func LocalClient(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
}
