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
	"coldaisle.dev/shared/pause"
)

// users are the simulated users of the API. Each is a customer of their own, who
// owns nodes, polls the dashboard's endpoints and validates predictions.
type users struct {
	api   string
	clock func() time.Time
	all   []*user
	owner map[string]*user // by node

	mu       sync.Mutex
	calls    int
	failed   []failure
	verdicts []verdict
}

// user is one customer's user.
type user struct {
	*system.APIUser

	credentials system.Credentials
	name        string
	thresholds  alert.Thresholds
	nodes       []string
}

// failure is a failed call of the API.
type failure struct {
	from, to time.Time
	call     string
	text     string
}

// verdict is a recorded prediction and the user's answer to it, as far as the API
// confirmed them.
type verdict struct {
	at       time.Time // of the prediction: its identity
	recorded bool      // the API confirmed it
	feedback string    // what the API confirmed; empty for nothing
}

func newUsers(api string, clock func() time.Time) *users {
	return &users{api: api, clock: clock, owner: map[string]*user{}}
}

// roomsPerUser is how many rooms of four nodes a customer has.
const roomsPerUser = 50

// createRooms registers customers with rooms and sensors through the API. Every
// second customer sets thresholds.
func (u *users) createRooms(ctx context.Context, rooms [][]string) error {
	for i, nodes := range rooms {
		if i%roomsPerUser == 0 {
			if err := u.register(ctx, i/roomsPerUser); err != nil {
				return err
			}
		}
		c := u.all[len(u.all)-1]
		if err := c.CreateRoom(ctx, fmt.Sprintf("Room %d", i+1), nodes); err != nil {
			return err
		}
		for _, node := range nodes {
			u.owner[node] = c
		}
		c.nodes = append(c.nodes, nodes...)
	}
	return nil
}

func (u *users) register(ctx context.Context, number int) error {
	c := &user{
		APIUser: &system.APIUser{Base: u.api}, name: fmt.Sprintf("soakuser%d", number), thresholds: alert.Defaults(),
		credentials: system.Credentials{Email: fmt.Sprintf("soak%d@example.com", number), Password: "Aa1-" + rand.Text()},
	}
	if err := c.SignIn(ctx, c.credentials, c.name); err != nil {
		return err
	}
	u.all = append(u.all, c)
	if number%2 == 0 {
		return nil
	}
	c.thresholds = alert.Thresholds{MaxTemperature: 40, MaxHumidity: 55}
	thresholds := map[string]float64{"max_temperature": c.thresholds.MaxTemperature, "max_humidity": c.thresholds.MaxHumidity}
	_, err := c.Call(ctx, http.MethodPost, fmt.Sprintf("/api/v1/alerts/thresholds/%d", c.ID), thresholds, nil)
	return err
}

// thresholdsOf returns the thresholds of a node's owner.
func (u *users) thresholdsOf(node string) alert.Thresholds {
	if c, ok := u.owner[node]; ok {
		return c.thresholds
	}
	return alert.Defaults()
}

// The time between two requests of a user. The dashboard polls every 15 s; each of
// our users stands for several open pages.
const (
	browseInterval  = 2 * time.Second
	verdictInterval = 500 * time.Millisecond
)

// browse sends the requests of the dashboard's pages in a loop: the overview, then
// a room, then a sensor.
func (u *users) browse(ctx context.Context, number int) {
	c := u.session(ctx, u.all[number%len(u.all)])
	for round := 0; pause.For(ctx, browseInterval) == nil; round++ {
		room := fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", c.ID)
		var rooms []struct {
			ID int64 `json:"id"`
		}
		u.call(ctx, c, http.MethodGet, room, nil, &rooms)
		u.call(ctx, c, http.MethodGet, "/api/v1/alerts/active", nil, nil)
		first := (round * 20) % len(c.nodes)
		u.call(ctx, c, http.MethodPost, "/api/v1/data/multi-sensor",
			map[string]any{"node_ids": c.nodes[first:min(first+100, len(c.nodes))]}, nil)
		if len(rooms) > 0 {
			u.call(ctx, c, http.MethodGet, fmt.Sprintf("/api/v1/sensors/list_sensors/%d", rooms[round%len(rooms)].ID), nil, nil)
		}
		node := c.nodes[round%len(c.nodes)]
		span := url.Values{
			"start_time": {u.clock().Add(-24 * time.Hour).UTC().Format(time.RFC3339)},
			"end_time":   {u.clock().UTC().Format(time.RFC3339)}, "max_points": {"300"},
		}
		u.call(ctx, c, http.MethodGet, "/api/v1/data/historical/"+node+"?"+span.Encode(), nil, nil)
		u.call(ctx, c, http.MethodGet, "/api/v1/data/stats/"+node+"?period=24h", nil, nil)
		u.call(ctx, c, http.MethodGet, "/api/v1/alerts/history", nil, nil)
		u.call(ctx, c, http.MethodGet, "/api/v1/prediction-feedback/stats", nil, nil)
	}
}

// session returns a copy of the user with a token of its own.
func (u *users) session(ctx context.Context, c *user) *user {
	own := *c
	own.APIUser = &system.APIUser{Base: u.api}
	for own.SignIn(ctx, own.credentials, own.name) != nil && pause.For(ctx, browseInterval) == nil {
		continue
	}
	return &own
}

// validatePredictions records predictions and marks them as right or wrong.
func (u *users) validatePredictions(ctx context.Context) {
	validators := make([]*user, len(u.all))
	for i, c := range u.all {
		validators[i] = u.session(ctx, c)
	}
	for n := 0; pause.For(ctx, verdictInterval) == nil; n++ {
		c := validators[n%len(validators)]
		v := verdict{at: u.clock().UTC().Truncate(time.Microsecond)}
		prediction := map[string]any{
			"sensor_id": c.nodes[n%len(c.nodes)], "timestamp": v.at.Format(time.RFC3339Nano),
			"predicted_temp": 21.5, "predicted_humidity": 40, "actual_temp": 22.5, "actual_humidity": 41, "anomaly_predicted": n%5 == 0,
		}
		var created struct {
			ID int64 `json:"id"`
		}
		v.recorded = u.call(ctx, c, http.MethodPost, "/api/v1/prediction-feedback", prediction, &created)
		if v.recorded {
			feedback := []string{"ok", "not_ok"}[n%2]
			if u.call(ctx, c, http.MethodPut, fmt.Sprintf("/api/v1/prediction-feedback/%d", created.ID), map[string]string{"feedback": feedback}, nil) {
				v.feedback = feedback
			}
		}
		u.mu.Lock()
		u.verdicts = append(u.verdicts, v)
		u.mu.Unlock()
	}
}

// call calls the API and records a failure. It signs in again when the token has
// expired, as the page does.
func (u *users) call(ctx context.Context, c *user, method, path string, body, into any) bool {
	if ctx.Err() != nil {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	began := u.clock()
	status, err := c.Call(limited, method, path, body, into)
	if status == http.StatusUnauthorized {
		if err = c.SignIn(limited, c.credentials, c.name); err == nil {
			_, err = c.Call(limited, method, path, body, into)
		}
	}
	if ctx.Err() != nil {
		return err == nil // canceled by the end of the soak: not a failure
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls++
	if err != nil {
		path, _, _ = strings.Cut(path, "?")
		u.failed = append(u.failed, failure{from: began, to: u.clock(), call: method + " " + path, text: err.Error()})
	}
	return err == nil
}
