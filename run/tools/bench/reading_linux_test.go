package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pgtest"
)

// BenchmarkReading sends readings through the whole local system as fast as the gateway
// answers, and waits until all of them are stored and judged: an operation is a reading
// from the node to its row. The processor's time for one, of the system with the nodes
// that send and of PostgreSQL, says what readings a second a machine can bear: other
// programs change it little.
//
//	go test -run '^$' -bench Reading -benchtime 20000x ./run/tools/bench
func BenchmarkReading(b *testing.B) {
	const nodes, connections = 100, 128
	s, err := system.Start(b.Context(), system.Options{DataDir: b.TempDir(), Clock: time.Now, Log: logging.Discard()})
	pgtest.SkipUnlessAvailable(b, err)
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	defer func() {
		if err := s.Stop(); err != nil {
			b.Error(err)
		}
	}()
	user := system.NewAPIUser(s.APIURL)
	ids := make([]string, nodes)
	for i := range ids {
		ids[i] = fmt.Sprintf("node-%d", i)
	}
	err = errors.Join(
		user.SignIn(ctx, system.Credentials{Email: "bench@example.com", Password: "Passw0rd1"}, "benchuser"),
		user.CreateRoom(ctx, "Room", ids))
	if err != nil {
		b.Fatal(err)
	}
	var folder string
	if err := s.Pool.QueryRow(ctx, `SHOW data_directory`).Scan(&folder); err != nil {
		b.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	defer client.CloseIdleConnections()
	own, database := used(b, os.Getpid()), usedByPostgreSQL(b, folder)
	b.ResetTimer()
	var next atomic.Int64
	var sending sync.WaitGroup
	for range connections {
		sending.Go(func() {
			for n := int(next.Add(1)); n <= b.N; n = int(next.Add(1)) {
				if err := post(ctx, client, s.GatewayURL, reading(n, ids)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	sending.Wait()
	if err := s.Bridge.Drain(ctx); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	perReading := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(b.N) }
	b.ReportMetric(perReading(used(b, os.Getpid())-own), "system-processor-µs/op")
	b.ReportMetric(perReading(usedByPostgreSQL(b, folder)-database), "postgresql-processor-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "readings/s")
	if stored := count(b, s); stored != b.N {
		b.Errorf("%d readings stored of %d", stored, b.N)
	}
}

// usedByPostgreSQL is the processor time of a server and of its processes, those that
// have ended included.
func usedByPostgreSQL(b *testing.B, folder string) time.Duration {
	b.Helper()
	content, err := os.ReadFile(filepath.Join(folder, "postmaster.pid"))
	if err != nil {
		b.Fatal(err)
	}
	first, _, _ := bytes.Cut(content, []byte("\n"))
	server, err := strconv.Atoi(string(first))
	if err != nil {
		b.Fatal(err)
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		b.Fatal(err)
	}
	sum := used(b, server)
	for _, process := range all {
		fields := stat(process)
		if pid, _ := strconv.Atoi(filepath.Base(process)); fields != nil && string(fields[1]) == strconv.Itoa(server) {
			sum += used(b, pid)
		}
	}
	return sum
}

// used is the processor time of a process and of its children that have ended, to 10 ms.
func used(b *testing.B, pid int) time.Duration {
	b.Helper()
	fields := stat(filepath.Join("/proc", strconv.Itoa(pid)))
	if fields == nil {
		return 0 // it has ended
	}
	var ticks int64
	for _, field := range fields[11:15] { // utime, stime, cutime and cstime
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// stat is what /proc says of a process behind its name, see proc_pid_stat(5): its state
// first. It is nil of one that has ended.
func stat(process string) [][]byte {
	content, err := os.ReadFile(filepath.Join(process, "stat"))
	if err != nil {
		return nil
	}
	_, rest, _ := bytes.Cut(content, []byte(") "))
	return bytes.Fields(rest)
}
