package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/alert"
)

// people are the customers: they own the nodes, look at the dashboard and judge
// predictions.
type people struct {
	api       string
	clock     func() time.Time
	customers []*customer
	owner     map[string]*customer // by node

	mu       sync.Mutex
	calls    int
	failed   []failure
	verdicts []verdict
}

// customer is one of them.
type customer struct {
	*system.Person

	id     int64
	login  system.Login
	name   string
	limits alert.Thresholds
	nodes  []string
}

// failure is a call of the API's that did not succeed.
type failure struct {
	from, to time.Time
	call     string
	text     string
}

// verdict is a prediction that was recorded and judged, as far as it is known.
type verdict struct {
	at       time.Time // of the prediction: its identity
	recorded bool      // the API said so
	feedback string    // the API said that it has it; empty if not
}

func newPeople(api string, clock func() time.Time) *people {
	return &people{api: api, clock: clock, owner: map[string]*customer{}}
}

// roomsEach is how many rooms of four nodes a customer has.
const roomsEach = 50

// furnish registers customers with rooms and sensors, all through the API.
// Every second one sets limits of their own.
func (p *people) furnish(ctx context.Context, rooms [][]string) error {
	for i, nodes := range rooms {
		if i%roomsEach == 0 {
			if err := p.register(ctx, i/roomsEach); err != nil {
				return err
			}
		}
		c := p.customers[len(p.customers)-1]
		if err := c.Furnish(ctx, fmt.Sprintf("Room %d", i+1), nodes); err != nil {
			return err
		}
		for _, node := range nodes {
			p.owner[node] = c
		}
		c.nodes = append(c.nodes, nodes...)
	}
	return nil
}

func (p *people) register(ctx context.Context, number int) error {
	c := &customer{
		Person: system.NewPerson(p.api), name: fmt.Sprintf("soaker%d", number), limits: defaults(),
		login: system.Login{Email: fmt.Sprintf("soak%d@example.com", number), Password: "Aa1-" + rand.Text()},
	}
	var made struct {
		ID int64 `json:"id"`
	}
	body := map[string]string{"email": c.login.Email, "username": c.name, "password": c.login.Password}
	if _, err := c.Call(ctx, http.MethodPost, "/api/v1/customers/register", body, &made); err != nil {
		return err
	}
	c.id = made.ID
	if err := c.SignIn(ctx, c.login, c.name); err != nil {
		return err
	}
	p.customers = append(p.customers, c)
	if number%2 == 0 {
		return nil
	}
	c.limits = alert.Thresholds{MaxTemperature: 40, MaxHumidity: 55}
	limits := map[string]float64{"max_temperature": c.limits.MaxTemperature, "max_humidity": c.limits.MaxHumidity}
	_, err := c.Call(ctx, http.MethodPost, fmt.Sprintf("/api/v1/alerts/thresholds/%d", c.id), limits, nil)
	return err
}

// limits are those of a node's owner.
func (p *people) limits(node string) alert.Thresholds {
	if c, ok := p.owner[node]; ok {
		return c.limits
	}
	return defaults()
}

// The pauses of people: the page asks every 15 s; ours have several of them
// open.
const (
	lookEvery  = 2 * time.Second
	judgeEvery = 500 * time.Millisecond
)

// look asks what the dashboard's pages ask, over and over: the overview, then a
// room, then a sensor.
func (p *people) look(ctx context.Context, number int) {
	c := p.session(ctx, p.customers[number%len(p.customers)])
	for turn := 0; pause(ctx, lookEvery); turn++ {
		room := fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", c.id)
		var rooms []struct {
			ID int64 `json:"id"`
		}
		p.call(ctx, c, http.MethodGet, room, nil, &rooms)
		p.call(ctx, c, http.MethodGet, "/api/v1/alerts/active", nil, nil)
		first := (turn * 20) % len(c.nodes)
		p.call(ctx, c, http.MethodPost, "/api/v1/data/multi-sensor",
			map[string]any{"node_ids": c.nodes[first:min(first+100, len(c.nodes))]}, nil)
		if len(rooms) > 0 {
			p.call(ctx, c, http.MethodGet, fmt.Sprintf("/api/v1/sensors/list_sensors/%d", rooms[turn%len(rooms)].ID), nil, nil)
		}
		node := c.nodes[turn%len(c.nodes)]
		span := url.Values{
			"start_time": {p.clock().Add(-24 * time.Hour).UTC().Format(time.RFC3339)},
			"end_time":   {p.clock().UTC().Format(time.RFC3339)}, "max_points": {"300"},
		}
		p.call(ctx, c, http.MethodGet, "/api/v1/data/historical/"+node+"?"+span.Encode(), nil, nil)
		p.call(ctx, c, http.MethodGet, "/api/v1/data/stats/"+node+"?period=24h", nil, nil)
		p.call(ctx, c, http.MethodGet, "/api/v1/alerts/history", nil, nil)
		p.call(ctx, c, http.MethodGet, "/api/v1/prediction-feedback/stats", nil, nil)
	}
}

// session is a customer at a browser of their own, signed in.
func (p *people) session(ctx context.Context, c *customer) *customer {
	own := *c
	own.Person = system.NewPerson(p.api)
	for own.SignIn(ctx, own.login, own.name) != nil && pause(ctx, lookEvery) {
		continue
	}
	return &own
}

// judge records predictions and judges them, one after the other.
func (p *people) judge(ctx context.Context) {
	judges := make([]*customer, len(p.customers))
	for i, c := range p.customers {
		judges[i] = p.session(ctx, c)
	}
	for n := 0; pause(ctx, judgeEvery); n++ {
		c := judges[n%len(judges)]
		v := verdict{at: p.clock().UTC().Truncate(time.Microsecond)}
		prediction := map[string]any{
			"sensor_id": c.nodes[n%len(c.nodes)], "timestamp": v.at.Format(time.RFC3339Nano),
			"predicted_temp": 21.5, "predicted_humidity": 40, "actual_temp": 22.5, "actual_humidity": 41, "anomaly_predicted": n%5 == 0,
		}
		var made struct {
			ID int64 `json:"id"`
		}
		v.recorded = p.call(ctx, c, http.MethodPost, "/api/v1/prediction-feedback", prediction, &made)
		if v.recorded {
			feedback := []string{"ok", "not_ok"}[n%2]
			if p.call(ctx, c, http.MethodPut, fmt.Sprintf("/api/v1/prediction-feedback/%d", made.ID), map[string]string{"feedback": feedback}, nil) {
				v.feedback = feedback
			}
		}
		p.mu.Lock()
		p.verdicts = append(p.verdicts, v)
		p.mu.Unlock()
	}
}

// call makes one call and notes how it ended. A token that has expired is
// renewed, as the page does by asking to sign in again.
func (p *people) call(ctx context.Context, c *customer, method, path string, body, into any) bool {
	if ctx.Err() != nil {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	began := p.clock()
	status, err := c.Call(limited, method, path, body, into)
	if status == http.StatusUnauthorized {
		if err = c.SignIn(limited, c.login, c.name); err == nil {
			_, err = c.Call(limited, method, path, body, into)
		}
	}
	if ctx.Err() != nil {
		return err == nil // the soak is over; a call cut by that says nothing
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if err != nil {
		path, _, _ = strings.Cut(path, "?")
		p.failed = append(p.failed, failure{from: began, to: p.clock(), call: method + " " + path, text: err.Error()})
	}
	return err == nil
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
