package gateway

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/go-json-experiment/json/v1"

	"coldaisle.dev/edge-gateway/statefile"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/reading"
)

// Nodes register once, at boot, and do not notice a gateway that restarts. So the list
// of nodes is kept in a file for a day.
const (
	nodesRemembered = 24 * time.Hour
	// nodesFileInterval is the least time between two writes of the file, which lies
	// on an SD card: nodes that register meanwhile are written together.
	nodesFileInterval = time.Minute
	// seenInterval is the least time between two writes that only update last_seen.
	seenInterval = 15 * time.Minute
	// maxNodesFile bounds what is read, in bytes: a node is under 256.
	maxNodesFile = 4 << 20
)

// saveNodes writes the list of nodes when it has changed, and a last time when the
// context ends.
func (g *Gateway) saveNodes(ctx context.Context) {
	if g.config.NodesFile == "" {
		return
	}
	s := g.sender
	write := func() {
		content, err := json.Marshal(g.nodes.list(s.clock()))
		if err == nil {
			err = statefile.Write(g.config.NodesFile, content)
		}
		if err != nil {
			s.events.add(ctx, slog.LevelWarn, "", "the list of nodes cannot be saved for a restart", "error", err.Error())
		}
	}
	defer write()
	for {
		select {
		case <-g.nodes.changed:
		case <-time.After(seenInterval):
		case <-ctx.Done():
			return
		}
		write()
		if pause.For(ctx, nodesFileInterval) != nil {
			return
		}
	}
}

// readNodes returns the file's nodes that were seen within a day, or later than now: a machine
// without a battery starts with an old time. A damaged file, or an empty path, has none, and invalid
// entries are left out.
func readNodes(path string, now time.Time) []NodeInfo {
	file, err := os.Open(path) //nolint:gosec // the setting of whoever runs the gateway
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	var all, valid []NodeInfo
	if json.NewDecoder(io.LimitReader(file, maxNodesFile)).Decode(&all) != nil {
		return nil
	}
	for _, n := range all {
		_, err := netip.ParseAddr(n.Address)
		if err == nil && reading.ValidateSensorID(n.NodeID) == nil && now.Sub(n.LastSeen) < nodesRemembered {
			valid = append(valid, n)
		}
	}
	return valid
}
