package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pgtest"
)

const (
	// measuring is how long each rate is held.
	measuring = 8 * time.Second
	// patience is how long one reading may take to arrive; a probe that takes
	// longer counts as that long.
	patience   = 30 * time.Second
	otherNodes = 500 // nodes that send beside the probe
	probe      = "probe"
)

// BenchmarkEndToEnd follows single readings from the node's POST to its answer,
// to the row that the API shows, and to the alert that it shows, while others
// send at a rate.
func BenchmarkEndToEnd(b *testing.B) {
	for _, rate := range []int{10, 1000, 5000} {
		b.Run(fmt.Sprintf("%d/s", rate), func(b *testing.B) {
			for b.Loop() {
				offerLoad(b, rate)
			}
		})
	}
}

// offerLoad measures one rate on a system of its own.
func offerLoad(b *testing.B, rate int) {
	b.Helper()
	s, err := system.Start(b.Context(), system.Options{DataDir: b.TempDir(), Clock: time.Now, Log: logging.Discard()})
	pgtest.SkipUnlessAvailable(b, err)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), 5*time.Minute)
		defer cancel()
		if err := errors.Join(s.Bridge.Drain(ctx), s.Stop()); err != nil {
			b.Error(err)
		}
	}()
	user := system.NewAPIUser(s.APIURL)
	credentials := system.Credentials{Email: "bench@example.com", Password: "Passw0rd1"}
	if err := user.SignIn(b.Context(), credentials, "benchuser"); err != nil {
		b.Fatal(err)
	}
	nodes := make([]string, otherNodes)
	for i := range nodes {
		nodes[i] = fmt.Sprintf("node-%d", i)
	}
	if err := user.CreateRoom(b.Context(), "Room", append(nodes, probe)); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithTimeout(b.Context(), measuring)
	defer stop()
	began := time.Now()
	var sending sync.WaitGroup
	sending.Go(func() { send(ctx, s.GatewayURL, nodes, rate) })
	answers, rows, alerts := probes(ctx, b, s, user)
	stored := float64(count(b, s)) / time.Since(began).Seconds()
	stop()
	sending.Wait()
	b.ReportMetric(stored, "stored/s")
	for name, times := range map[string][]time.Duration{"answer": answers, "row": rows, "alert": alerts} {
		slices.Sort(times)
		b.ReportMetric(at(times, 0.5), name+"-p50-ms")
		b.ReportMetric(at(times, 0.99), name+"-p99-ms")
	}
}

// at is a quantile in ms.
func at(sorted []time.Duration, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(len(sorted)-1, int(share*float64(len(sorted))))].Microseconds()) / 1000
}

func count(b *testing.B, s *system.System) (rows int) {
	b.Helper()
	if err := s.Pool.QueryRow(b.Context(), `SELECT count(*) FROM sensor_data.readings`).Scan(&rows); err != nil {
		b.Fatal(err)
	}
	return rows
}

// send posts readings at a rate, whether or not they are answered in time, as
// nodes do, over as many connections as it takes.
func send(ctx context.Context, gateway string, nodes []string, rate int) {
	const connections = 128
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	began := time.Now()
	var next atomic.Int64
	var senders sync.WaitGroup
	for range connections {
		senders.Go(func() {
			for {
				n := next.Add(1)
				due := began.Add(time.Duration(n) * time.Second / time.Duration(rate))
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Until(due)):
				}
				_ = post(context.WithoutCancel(ctx), client, gateway, reading(int(n), nodes))
			}
		})
	}
	senders.Wait()
}

// reading is the n-th of nodes that take turns. It changes by the least that a sensor
// tells: detection would record one that is stuck, and one that leaps, at each reading.
func reading(n int, nodes []string) string {
	round := n / len(nodes)
	return fmt.Sprintf(`{"id":"%x","node_id":%q,"temperature":%.1f,"humidity":%.1f}`,
		n, nodes[n%len(nodes)], 21.5+float64(round/3%2)/10, 40+float64(round/5%2)/10)
}

func post(ctx context.Context, client *http.Client, gateway, body string) error {
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

// probes sends one reading after the other, the next when both its row and its
// alert have been seen, until ctx ends.
func probes(ctx context.Context, b *testing.B, s *system.System, user *system.APIUser) (answers, rows, alerts []time.Duration) {
	b.Helper()
	whole := context.WithoutCancel(ctx) // the last probe's
	client := &http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	for i := 0; ctx.Err() == nil; i++ {
		temperature := 60 + float64(i%500)/10
		began := time.Now()
		if err := post(whole, client, s.GatewayURL, fmt.Sprintf(`{"id":"p%d","node_id":%q,"temperature":%.1f,"humidity":40}`, i, probe, temperature)); err != nil {
			b.Fatal(err)
		}
		answers = append(answers, time.Since(began))
		var seeing sync.WaitGroup
		var row, alert time.Duration
		seeing.Go(func() {
			row = seen(b, began, func() bool {
				var latest struct{ Temperature float64 }
				_, err := user.Call(whole, http.MethodGet, "/api/v1/data/latest/"+probe, nil, &latest)
				return err == nil && latest.Temperature == temperature
			})
		})
		seeing.Go(func() {
			text := fmt.Sprintf("%.1f°C", temperature)
			alert = seen(b, began, func() bool {
				var newest []struct{ Message string }
				_, err := user.Call(whole, http.MethodGet, "/api/v1/alerts/history?limit=1&sensor_id="+probe, nil, &newest)
				return err == nil && len(newest) == 1 && strings.Contains(newest[0].Message, text)
			})
		})
		seeing.Wait()
		rows, alerts = append(rows, row), append(alerts, alert)
	}
	return answers, rows, alerts
}

// seen asks until it is so and returns how long that took.
func seen(b *testing.B, began time.Time, so func() bool) time.Duration {
	b.Helper()
	for time.Since(began) < patience {
		if so() {
			return time.Since(began)
		}
		time.Sleep(2 * time.Millisecond) // between two looks
	}
	return patience
}
