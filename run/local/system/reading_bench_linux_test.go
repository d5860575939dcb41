package system_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
)

// BenchmarkReading sends readings through the whole local system and waits until all of
// them are stored and judged: an operation is a reading from the node to its row. The
// nodes send as fast as the gateway answers, or RATE readings a second. The processor
// time of one reading, of the system with the nodes that send and of PostgreSQL, bounds
// the readings a second of a machine: other programs change it little.
//
//	go test -run '^$' -bench '^BenchmarkReading$' -benchtime 20000x ./run/local/system
//	RATE=33 go test -run '^$' -bench '^BenchmarkReading$' -benchtime 1000x ./run/local/system
func BenchmarkReading(b *testing.B) {
	const nodes, connections = 100, 128
	interval := time.Duration(0)
	if rate, err := strconv.Atoi(os.Getenv("RATE")); err == nil {
		interval = time.Second / time.Duration(rate)
	}
	s, err := system.Start(b.Context(), system.Options{DataDir: b.TempDir(), Clock: time.Now, Log: logging.Discard()})
	pgtest.SkipUnlessAvailable(b, err)
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	defer func() {
		if err := s.Stop(); err != nil {
			b.Error(err)
		}
	}()
	user := &system.APIUser{Base: s.APIURL}
	ids := make([]string, nodes)
	for i := range ids {
		ids[i] = fmt.Sprintf("node-%d", i)
	}
	must.Do(b, errors.Join(
		user.SignIn(ctx, system.Credentials{Email: "bench@example.com", Password: "Passw0rd1"}, "benchuser"),
		user.CreateRoom(ctx, "Room", ids)))
	var folder string
	must.Do(b, s.Pool.QueryRow(ctx, `SHOW data_directory`).Scan(&folder))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	own, database := used(b, os.Getpid()), usedByPostgreSQL(b, folder)
	b.ResetTimer()
	began := time.Now()
	var next atomic.Int64
	var sending sync.WaitGroup
	for range connections {
		sending.Go(func() {
			for n := int(next.Add(1)); n <= b.N; n = int(next.Add(1)) {
				time.Sleep(time.Until(began.Add(time.Duration(n) * interval))) // until its turn at the rate
				if err := postReading(ctx, client, s.GatewayURL, n, ids); err != nil {
					b.Error(err)
				}
			}
		})
	}
	sending.Wait()
	must.Do(b, s.Queue.Drain(ctx))
	b.StopTimer()
	perReading := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(b.N) }
	b.ReportMetric(perReading(used(b, os.Getpid())-own), "system-processor-µs/op")
	b.ReportMetric(perReading(usedByPostgreSQL(b, folder)-database), "postgresql-processor-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "readings/s")
	var stored int
	must.Do(b, s.Pool.QueryRow(ctx, `SELECT count(*) FROM sensor_data.readings`).Scan(&stored))
	if stored != b.N {
		b.Errorf("%d readings stored of %d", stored, b.N)
	}
}

// postReading sends the n-th reading of nodes that take turns. Values change by a sensor's
// smallest step: detect would record a stuck sensor, and a leap, at each reading.
func postReading(ctx context.Context, client *http.Client, gateway string, n int, nodes []string) error {
	round := n / len(nodes)
	body := fmt.Sprintf(`{"id":"%x","node_id":%q,"temperature":%.1f,"humidity":%.1f}`,
		n, nodes[n%len(nodes)], 21.5+float64(round/3%2)/10, 40+float64(round/5%2)/10)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, gateway+"/api/v1/message", strings.NewReader(body))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", response.Status)
	}
	return nil
}

// usedByPostgreSQL is the processor time of a server and of its processes, those that
// have ended included.
func usedByPostgreSQL(b *testing.B, folder string) time.Duration {
	b.Helper()
	content := must.Get(os.ReadFile(filepath.Join(folder, "postmaster.pid")))(b)
	first, _, _ := bytes.Cut(content, []byte("\n"))
	server := must.Get(strconv.Atoi(string(first)))(b)
	all := must.Get(filepath.Glob("/proc/[0-9]*"))(b)
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
		n := must.Get(strconv.ParseInt(string(field), 10, 64))(b)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// stat returns the fields of /proc/PID/stat behind the program's name, see proc_pid_stat(5),
// or nil when the process has ended.
func stat(process string) [][]byte {
	content, err := os.ReadFile(filepath.Join(process, "stat"))
	if err != nil {
		return nil
	}
	_, rest, _ := bytes.Cut(content, []byte(") "))
	return bytes.Fields(rest)
}
