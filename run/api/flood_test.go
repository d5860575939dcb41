package api

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// crowd has so many clients do something over and over until it is stopped.
func crowd(clients int, do func(client, round int)) (stop func()) {
	var stopped atomic.Bool
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for round := 0; !stopped.Load(); round++ {
				do(client, round)
			}
		})
	}
	return func() { stopped.Store(true); all.Wait() }
}

// runFlood logs in from so many clients for a while, and until some are answered, and meanwhile asks for the active
// alerts a hundred times a second. It returns the logins per second and the times of the other requests.
func runFlood(tb testing.TB, s *testAPI, a *testCustomer, clients int, lasting time.Duration) (perSecond float64, others []time.Duration) {
	tb.Helper()
	body := fmt.Sprintf(`{"email":%q,"password":%q}`, a.email, a.password)
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var logins atomic.Int64
	stop := crowd(clients, func(int, int) {
		response, err := client.Post(s.url+"/api/v1/customers/login", "application/json", strings.NewReader(body))
		if err != nil {
			return
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			logins.Add(1)
		}
	})
	began := time.Now()
	for time.Since(began) < lasting || logins.Load() < int64(clients) && time.Since(began) < 3*time.Minute {
		time.Sleep(10 * time.Millisecond)
		asked := time.Now()
		s.call(tb, a.token, http.MethodGet, "/api/v1/alerts/active", "").is(tb, http.StatusOK)
		others = append(others, time.Since(asked))
	}
	perSecond = float64(logins.Load()) / time.Since(began).Seconds()
	stop()
	return perSecond, others
}

// TestLoginFloodFromOneAddress has one client send more logins and registrations at a time than can wait, each under a
// new invented address. Another client logs in and registers meanwhile, one request at a time, and is answered. The
// first gets 503 and when to try again, but not where it needs no password. Nobody gets a 500. Contract 2.9.
func TestLoginFloodFromOneAddress(t *testing.T) { //nolint:paralleltest // takes the processor
	tooltest.Long(t)
	s, a := newTestCustomer(t, func(d *Config) { d.PasswordSlots, d.TrustedProxies = 1, []string{"peer"} })
	const flooder, other = "203.0.113.7", "198.51.100.9"
	post := func(path, body, from string) reply {
		return s.send(t, "", http.MethodPost, path, body, map[string]string{"X-Forwarded-For": from})
	}
	const login, register = "/api/v1/customers/login", "/api/v1/customers/register"
	right := fmt.Sprintf(`{"email":%q,"password":%q}`, a.email, a.password)

	var refused, served atomic.Int64
	stop := crowd(2*auth.MaxWaiting, func(i, n int) {
		from := fmt.Sprintf("192.0.2.%d, %s", (i+n)%256, flooder)
		got := post(login, right, from)
		if i%2 == 0 {
			got = post(register, fmt.Sprintf(`{"email":"f%d.%d@example.com","username":"f%d.%05d","password":"Passw0rd"}`, i, n, i, n), from)
		}
		if got.status < 300 {
			served.Add(1)
			return
		}
		refused.Add(1)
		got.says(t, http.StatusServiceUnavailable, "Too many logins and registrations at once; try again in a moment")
		must.Equal(t, "Retry-After", "10", got.header.Get("Retry-After"))
		time.Sleep(100 * time.Millisecond) // the queue stays full, and the processor is not
	})
	for deadline := time.Now().Add(3 * time.Minute); refused.Load() == 0 && time.Now().Before(deadline); {
		s.call(t, "", http.MethodGet, "/health", "")
	}
	for n := range 3 {
		post(login, right, other).is(t, http.StatusOK)
		post(register, fmt.Sprintf(`{"email":"o%d@example.com","username":"other%d","password":"Passw0rd"}`, n, n), other).is(t, http.StatusCreated)
		s.send(t, a.token, http.MethodGet, "/api/v1/alerts/active", "", map[string]string{"X-Forwarded-For": flooder}).is(t, http.StatusOK)
	}
	stop()
	must.Equal(t, "of the flood some are refused, some served", []bool{true, true}, []bool{refused.Load() > 0, served.Load() > 0})
}

// TestKnownDevicesUnderFlood has 320 addresses guess the password of an account, each again half a second after it was
// refused: the queue is always full, and the processor is not, whose wait would be measured otherwise. Whoever has
// logged in before sends the cookie of that and always gets in, also by turns with another of the browser's persons; a
// cookie for another address, a forged and an old one open nothing. Contract 2.9.
func TestKnownDevicesUnderFlood(t *testing.T) { //nolint:paralleltest // takes the processor
	tooltest.Long(t)
	s, a := newTestCustomer(t, func(d *Config) { d.PasswordSlots, d.PasswordCost, d.TrustedProxies = 1, 8, []string{"peer"} })
	b := a.with(t, "viewer")
	var signedIn []*testCustomer
	for range 6 {
		signedIn = append(signedIn, a.with(t, "viewer"))
	}
	login := func(email, password, from, cookie string) reply {
		return s.send(t, "", http.MethodPost, "/api/v1/customers/login", fmt.Sprintf(`{"email":%q,"password":%q}`, email, password),
			map[string]string{"X-Forwarded-For": from, "Cookie": cookie})
	}
	cookieOf := func(p *testCustomer) string {
		cookie := login(p.email, p.password, "198.51.100.9", "").header.Get("Set-Cookie")
		value, attributes, _ := strings.Cut(cookie, ";")
		must.Equal(t, "attributes", " Path=/api/v1/customers/login; Max-Age=15552000; HttpOnly; Secure; SameSite=Strict", attributes)
		return value
	}
	mine, other := cookieOf(a), cookieOf(b)
	opensNothing := func(what, cookie string) { // without a lane of its own one login in eight or more is refused
		t.Helper()
		for n := range 100 {
			if login(a.email, a.password, fmt.Sprintf("198.51.100.%d", n), cookie).status == http.StatusServiceUnavailable {
				return
			}
		}
		t.Errorf("all logins with an %s cookie got in", what)
	}
	var refused atomic.Int64
	stop := crowd(320, func(i, _ int) {
		if got := login(a.email, "Gue55ing", fmt.Sprintf("192.0.%d.%d", i/250, i%250), other); got.status == http.StatusServiceUnavailable {
			refused.Add(1)
			time.Sleep(500 * time.Millisecond)
		} else {
			got.is(t, http.StatusUnauthorized)
		}
	})
	for deadline := time.Now().Add(time.Minute); refused.Load() < 320 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	const logins = 8
	in, began := 0, time.Now()
	for n := range logins {
		person := []*testCustomer{a, b}[n%2]
		if got := login(person.email, person.password, fmt.Sprintf("198.51.100.%d", n), mine+"; "+other); got.status == http.StatusOK {
			in++
		} else {
			got.is(t, http.StatusServiceUnavailable)
		}
	}
	took := time.Since(began)
	for _, person := range signedIn { // a token is as good as a cookie
		s.call(t, person.token, http.MethodPatch, fmt.Sprintf("/api/v1/customers/%d", a.id), `{"password":"NewPassw0rd"}`).is(t, 200)
	}
	opensNothing("forged", mine+"x")
	s.forward(181 * 24 * time.Hour)
	opensNothing("old", mine)
	stop()
	if in < logins-1 { // a machine that is busy with others may refuse one
		t.Errorf("of %d logins with a cookie %d got in, in %v, while %d guesses were refused", logins, in, took, refused.Load())
	}
}

// BenchmarkLoginFlood gives the logins per second against what bcrypt allows on
// all cores, and the times of other requests meanwhile.
func BenchmarkLoginFlood(b *testing.B) {
	hash := must.Get(bcrypt.GenerateFromPassword([]byte("Passw0rd"), auth.DefaultPasswordCost))(b)
	var bound atomic.Int64
	began, procs := time.Now(), runtime.GOMAXPROCS(0)
	stop := crowd(procs, func(int, int) {
		_ = bcrypt.CompareHashAndPassword(hash, []byte("Passw0rd"))
		bound.Add(1)
	})
	time.Sleep(2 * time.Second)
	stop()
	limit := float64(bound.Load()) / time.Since(began).Seconds()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2 * procs)) // as run/server does
	s, a := newTestCustomer(b, func(d *Config) { d.PasswordCost, d.PasswordSlots = auth.DefaultPasswordCost, procs })
	s.document = nil
	var perSecond float64
	var others []time.Duration
	for b.Loop() {
		perSecond, others = runFlood(b, s, a, 16, 5*time.Second)
	}
	b.ReportMetric(perSecond, "logins/s")
	b.ReportMetric(limit, "bcrypt/s")
	reportTimes(b, others)
}
