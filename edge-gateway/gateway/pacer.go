package gateway

import "time"

// batchPacer keeps the uplink and the processor nearly free for live readings while the
// outbox drains. It halves the batch when one takes more than slack longer than the
// fastest, doubles it otherwise, and pauses after each batch for as long as the batch
// took. While live readings come, batches are small and the pauses longer, up to three
// times the batch. The additional pause is bounded: on a line with high latency a batch
// takes long without using the processor, and the backlog must get through.
type batchPacer struct {
	size    int
	fastest time.Duration
}

const (
	largestBatch = 64
	// largestWithLive is the largest batch while live readings come: a live one may wait for
	// one batch. With 32 the 99th percentile is more than doubled (BenchmarkBacklog).
	largestWithLive = 16
	// longestWithLive bounds the additional pause then.
	longestWithLive = 10 * time.Millisecond
	// slack is how much longer than the fastest batch one may take: about the delay of a
	// live reading on a slow line.
	slack = 5 * time.Millisecond
)

func newBatchPacer() *batchPacer { return &batchPacer{size: 1} }

// next returns the pause after a batch of a duration; withLive says that live readings came
// since the batch before.
func (p *batchPacer) next(took time.Duration, withLive bool) time.Duration {
	if p.fastest == 0 || took < p.fastest {
		p.fastest = took
	}
	if took > p.fastest+slack {
		p.size = max(1, p.size/2)
		// On a line that has become slower for good, fastest rises towards it.
		p.fastest += (took - p.fastest) / 16
	} else {
		p.size = min(2*p.size, largestBatch)
	}
	pause := max(took, time.Millisecond)
	if withLive {
		p.size = min(p.size, largestWithLive)
		pause += min(2*pause, longestWithLive)
	}
	return pause
}
