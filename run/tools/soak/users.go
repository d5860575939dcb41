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

	"coldaisle.dev/edge-gateway/api"
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

	mu     sync.Mutex
	calls  int
	failed []failure
	// Predictions that were sent, those that the API said to have recorded, and their verdicts that it confirmed.
	predicted, recorded, validated int
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
	return c.Call(ctx, http.MethodPost, fmt.Sprintf("/api/v1/alerts/thresholds/%d", c.ID), thresholds, nil)
}

// thresholdsOf returns the thresholds of a node's owner.
func (u *users) thresholdsOf(node string) alert.Thresholds {
	if c, ok := u.owner[node]; ok {
		return c.thresholds
	}
	return alert.Defaults()
}

// browseInterval is the time between two looks of a user. The dashboard polls every 15 s;
// each of our users stands for several open pages.
const browseInterval = 2 * time.Second

// browse sends the requests of the dashboard's pages in a loop: the overview, then
// a room, then a sensor, and a verdict. Once, at a time, it starts a training run: verdicts on
// predictions of other models, as these are, do not.
func (u *users) browse(ctx context.Context, c *user, trains time.Time) {
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
		u.validatePrediction(ctx, c, round)
		if !trains.IsZero() && !u.clock().Before(trains) {
			u.call(ctx, c, http.MethodPost, "/api/v1/ml/retraining/trigger", nil, nil)
			trains = time.Time{}
		}
	}
}

// validatePrediction records a prediction and marks it as right or wrong.
func (u *users) validatePrediction(ctx context.Context, c *user, round int) {
	var created struct {
		ID int64 `json:"id"`
	}
	recorded := u.call(ctx, c, http.MethodPost, "/api/v1/prediction-feedback", map[string]any{
		"sensor_id": c.nodes[round%len(c.nodes)], "timestamp": u.clock().UTC().Format(time.RFC3339Nano),
		"predicted_temp": 21.5, "predicted_humidity": 40, "actual_temp": 22.5, "actual_humidity": 41, "anomaly_predicted": round%5 == 0,
	}, &created)
	validated := recorded && u.call(ctx, c, http.MethodPut, fmt.Sprintf("/api/v1/prediction-feedback/%d", created.ID),
		map[string]string{"feedback": []string{"ok", "not_ok"}[round%2]}, nil)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.predicted++
	if recorded {
		u.recorded++
	}
	if validated {
		u.validated++
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
	err := c.Call(limited, method, path, body, into)
	if api.IsStatus(err, http.StatusUnauthorized) {
		if err = c.SignIn(limited, c.credentials, c.name); err == nil {
			err = c.Call(limited, method, path, body, into)
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
