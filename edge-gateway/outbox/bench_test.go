package outbox_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"
)

// BenchmarkAppend measures a durable append of a gateway's message, by one and
// by many goroutines. written/op is what the process had the kernel write to
// disk, in bytes.
func BenchmarkAppend(b *testing.B) {
	message := rec("")
	for _, writers := range []int{1, 32} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			box := open(b, b.TempDir(), options())
			appendAll(b, writers, func() error { return box.Append(message) })
		})
	}
}

func appendAll(b *testing.B, writers int, add func() error) {
	b.Helper()
	b.SetParallelism(max(1, writers/runtime.GOMAXPROCS(0)))
	if writers == 1 {
		b.SetParallelism(1)
	}
	before := written()
	b.ResetTimer()
	if writers == 1 {
		for range b.N {
			if err := add(); err != nil {
				b.Fatal(err)
			}
		}
	} else {
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if err := add(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	b.StopTimer()
	if before >= 0 {
		b.ReportMetric(float64(written()-before)/float64(b.N), "written/op")
	}
}

// written is what this process has had written to disk, in bytes; negative
// where the system does not say.
func written() int64 {
	content, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return -1
	}
	for line := range bytes.Lines(content) {
		var n int64
		if _, err := fmt.Sscanf(string(line), "write_bytes: %d", &n); err == nil {
			return n
		}
	}
	return -1
}
