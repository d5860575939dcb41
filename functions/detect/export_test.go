package detect

import (
	"context"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/wire"
)

// Bound sets how many nodes are cached.
func (d *AnomalyDetector) Bound(nodes int) { d.rooms.most = nodes }

func (d *AnomalyDetector) Find(ctx context.Context, data wire.Data, sensor pipeline.SensorStatus, c *anomaly.Calibration, outOfRange bool) []incident.Finding {
	return d.find(ctx, data, sensor, c, outOfRange)
}
