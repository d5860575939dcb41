package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// memoryLimit is what a gateway with 1,000 nodes and full windows may take, in
// MB resident.
const memoryLimit = 64

// BenchmarkResidentMemory fills the windows of 1,000 nodes with ids of the
// longest kind in a gateway of its own and asks the system how large it is.
func BenchmarkResidentMemory(b *testing.B) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		b.Skip("the system does not tell")
	}
	const nodes, readings, workers = 1000, 121, 64
	server := startPubSub(b)
	p := newProcess(b, server.Addr, "NODE_RATE=0", "PUBLISH_TIMEOUT=8s", "MDNS=true")
	p.start()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	peak := 0.0
	for b.Loop() {
		var sending sync.WaitGroup
		began := time.Now()
		for w := range workers {
			sending.Go(func() {
				for i := range readings {
					for n := w; n < nodes; n += workers {
						body := fmt.Appendf(nil, `{"id":"%060d%04d","node_id":"node-%045d","temperature":%.1f,"humidity":%.1f}`,
							began.UnixNano(), i, n, 20+float64(i%97)/10, 40+float64(i%89)/10)
						response, err := client.Post(p.url()+"/api/v1/message", "application/json", bytes.NewReader(body))
						if err != nil {
							b.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, response.Body)
						_ = response.Body.Close()
						if response.StatusCode != http.StatusOK {
							b.Errorf("answered %d", response.StatusCode)
							return
						}
					}
					if w == 0 {
						server.ClearMessages()
					}
				}
			})
		}
		sending.Wait()
		peak = max(peak, p.resident())
	}
	if h := p.health(); h == nil || h.Nodes != nodes {
		b.Errorf("the gateway says %+v", h)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(peak, "MB-resident")
	if peak > memoryLimit {
		b.Errorf("%.1f MB resident, want at most %d", peak, memoryLimit)
	}
	_ = p.end(syscall.SIGTERM)
}

// resident is the physical memory of the process, in MB.
func (p *process) resident() float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range bytes.Lines(status) {
		var kb float64
		if _, err := fmt.Sscanf(string(line), "VmRSS: %f kB", &kb); err == nil {
			return kb / 1024
		}
	}
	p.t.Fatal("the system does not tell the resident memory")
	return 0
}
