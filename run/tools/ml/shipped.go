package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/site"
	"coldaisle.dev/run/tools/ml/trial"
)

// shipped writes the calibration that every customer begins with, of a simulated site of
// unlike nodes: shared/anomaly/shipped.calibration.
func shipped(ctx context.Context, out io.Writer) error {
	tracks, _ := trial.Made{
		Site: site.Options{Seed: trial.ShippedSeed, Rooms: 8, PerRoom: 6, Loss: 0.01, Jitter: time.Second, Unlike: true, Interval: 30 * time.Second},
		Past: 28 * 24 * time.Hour, Now: 12 * time.Hour,
	}.Tracks()
	_, calibration := trial.Replay(ctx, tracks, trial.Options{})
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stopped: %w", err)
	}
	content, err := calibration.Anonymous().MarshalBinary()
	if err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	if _, err := out.Write(content); err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	return nil
}
