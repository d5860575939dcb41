package api

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// flood logs in from so many clients for a while and meanwhile asks for the
// active alerts a hundred times a second. It returns the logins per second and
// the sorted times of the other requests.
func flood(tb testing.TB, s *system, a *account, clients int, lasting time.Duration) (perSecond float64, others []time.Duration) {
	tb.Helper()
	body := fmt.Sprintf(`{"email":%q,"password":%q}`, a.email, a.password)
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var logins atomic.Int64
	stop := make(chan struct{})
	var crowd sync.WaitGroup
	for range clients {
		crowd.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				response, err := client.Post(s.url+"/api/v1/customers/login", "application/json", strings.NewReader(body))
				if err != nil {
					return
				}
				_ = response.Body.Close()
				if response.StatusCode == http.StatusOK {
					logins.Add(1)
				}
			}
		})
	}
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < lasting {
		<-tick.C
		request, err := http.NewRequest(http.MethodGet, s.url+"/api/v1/alerts/active", nil)
		if err != nil {
			tb.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+a.token)
		asked := time.Now()
		response, err := s.client.Do(request)
		if err != nil {
			tb.Fatal(err)
		}
		_ = response.Body.Close()
		others = append(others, time.Since(asked))
	}
	perSecond = float64(logins.Load()) / time.Since(began).Seconds()
	close(stop)
	crowd.Wait()
	slices.Sort(others)
	return perSecond, others
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// TestLoginFlood shows that a flood of logins leaves the rest of the API usable.
// The bound is wide: the benchmark says how it is on a quiet machine.
func TestLoginFlood(t *testing.T) { //nolint:paralleltest // measures times
	if testing.Short() {
		t.Skip("takes the processor for two seconds")
	}
	// A lower cost, as many logins at a time: the processor is as full, and the
	// test ends under the race detector too, which slows bcrypt a hundredfold.
	s := newSystem(t, func(d *Deps) { d.PasswordCost = 8 })
	perSecond, others := flood(t, s, s.customer(t), 16, 2*time.Second)
	if perSecond == 0 {
		t.Error("nobody could log in")
	}
	if p99 := quantile(others, 0.99); p99 > 250*time.Millisecond {
		t.Errorf("other requests took %v (99 of 100) during the flood", p99)
	}
}

// BenchmarkLoginFlood gives the logins per second against what bcrypt allows on
// all cores, and the times of other requests meanwhile.
func BenchmarkLoginFlood(b *testing.B) {
	hash, err := bcrypt.GenerateFromPassword([]byte("Passw0rd"), passwordCost)
	if err != nil {
		b.Fatal(err)
	}
	var bound atomic.Int64
	began := time.Now()
	var cores sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		cores.Go(func() {
			for time.Since(began) < 2*time.Second {
				_ = bcrypt.CompareHashAndPassword(hash, []byte("Passw0rd"))
				bound.Add(1)
			}
		})
	}
	cores.Wait()
	limit := float64(bound.Load()) / time.Since(began).Seconds()
	procs := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2 * procs)) // as run/server does
	s := newSystem(b, func(d *Deps) { d.PasswordCost, d.PasswordSlots = passwordCost, procs })
	a := s.customer(b)
	var perSecond float64
	var others []time.Duration
	for b.Loop() {
		perSecond, others = flood(b, s, a, 16, 5*time.Second)
	}
	b.ReportMetric(perSecond, "logins/s")
	b.ReportMetric(limit, "bcrypt/s")
	b.ReportMetric(float64(quantile(others, 0.5).Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(quantile(others, 0.99).Microseconds())/1000, "p99-ms")
}
