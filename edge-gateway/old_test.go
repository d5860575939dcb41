package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkBesideOld sends readings by 256 connections to this gateway and to an older
// one, the program that GATEWAY_OLD names, turn by turn. Other work on the machine
// lengthens both's turns; what a reading takes of the processor it changes less. Without
// GATEWAY_OLD the gateway is beside itself, which shows how exact the figures are.
func BenchmarkBesideOld(b *testing.B) {
	const connections, turn = 256, 40 // readings a connection
	server := startPubSub(b)
	old, current := newFlow(b, server.Addr, connections), newFlow(b, server.Addr, connections)
	old.program = os.Getenv("GATEWAY_OLD")
	for _, f := range []*flow{old, current} {
		f.start()
		f.dial()
		f.send(122) // windows are full
		f.wall, f.readings, f.began = 0, 0, f.cpu()
	}
	for b.Loop() {
		for range 4 {
			old.send(turn)
			current.send(turn)
			server.ClearMessages()
			current.send(turn)
			old.send(turn)
			server.ClearMessages()
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(old.perSecond(), "old/s")
	b.ReportMetric(current.perSecond(), "new/s")
	b.ReportMetric(old.cpuEach(), "old-cpu-µs")
	b.ReportMetric(current.cpuEach(), "new-cpu-µs")
	b.ReportMetric(current.perSecond()/old.perSecond(), "rate-ratio")
	b.ReportMetric(old.cpuEach()/current.cpuEach(), "cpu-ratio")
	for _, f := range []*flow{old, current} {
		if err := f.end(syscall.SIGTERM); err != nil {
			b.Error(err)
		}
	}
}

// flow is a gateway under load.
type flow struct {
	*process

	connections []net.Conn
	readings    int
	wall        time.Duration
	began       time.Duration // of the processor's time
}

func newFlow(b *testing.B, pubsub string, connections int) *flow {
	b.Helper()
	return &flow{process: newProcess(b, pubsub, "NODE_RATE=0", "ADDRESS_RATE=0", "PUBLISH_TIMEOUT=8s"), connections: make([]net.Conn, connections)}
}

func (f *flow) dial() {
	for i := range f.connections {
		conn, err := (&net.Dialer{}).DialContext(f.t.Context(), "tcp", "127.0.0.1:"+strconv.Itoa(f.port))
		if err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { _ = conn.Close() })
		f.connections[i] = conn
	}
}

// send has each connection send so many readings.
func (f *flow) send(each int) {
	var sending sync.WaitGroup
	began := time.Now()
	for node, conn := range f.connections {
		sending.Go(func() {
			answers := bufio.NewReader(conn)
			for i := range each {
				body := fmt.Sprintf(`{"id":"%08x","node_id":"node-%04d","temperature":%.1f,"humidity":41.5}`, f.readings+i, node, 20+float64(i%97)/10)
				_, _ = fmt.Fprintf(conn, "POST /api/v1/message HTTP/1.1\r\nHost: gateway\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				answer, err := http.ReadResponse(answers, nil)
				if err != nil {
					f.t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					f.t.Errorf("answered %d", answer.StatusCode)
					return
				}
			}
		})
	}
	sending.Wait()
	f.wall += time.Since(began)
	f.readings += each * len(f.connections)
}

func (f *flow) perSecond() float64 { return float64(f.readings) / f.wall.Seconds() }

// cpuEach is what a reading takes of the processor, in µs.
func (f *flow) cpuEach() float64 {
	return float64((f.cpu() - f.began).Microseconds()) / float64(f.readings)
}

// cpu is the processor's time of the gateway, its own and the system's for it; 0 where
// the system does not tell.
func (p *process) cpu() time.Duration {
	const tick = 10 * time.Millisecond // of proc_pid_stat(5)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), ") ") // the program's name, which may hold spaces
	fields := strings.Fields(after)
	user, _ := strconv.Atoi(fields[14-3])
	system, _ := strconv.Atoi(fields[15-3])
	return time.Duration(user+system) * tick
}
