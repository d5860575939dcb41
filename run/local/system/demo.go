package system

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"coldaisle.dev/edge-gateway/nodesim"
)

// Login is a customer that was made for whoever looks around.
type Login struct{ Email, Password string }

// demoEmail and demoUsername name the demonstration's customer.
const (
	demoEmail    = "demo@example.com"
	demoUsername = "demouser"
	nodeType     = "ESP32-DHT22"
	// hotAfter is when the first room is too hot, so that a newcomer sees an
	// alert within the first minute.
	hotAfter = 25 * time.Second
)

// Demo makes a customer, gives them the simulated nodes as sensors, room by
// room, and brings the nodes to life. All of it goes through the API, as a
// person would. A second start finds what the first one made.
func (s *System) Demo(ctx context.Context) (Login, error) {
	password, err := kept(filepath.Join(s.options.DataDir, "demo_password"), func() string { return "Aa1-" + rand.Text() })
	if err != nil {
		return Login{}, err
	}
	login := Login{Email: demoEmail, Password: password}
	person := &Person{base: s.APIURL}
	if err := person.SignIn(ctx, login, demoUsername); err != nil {
		return Login{}, err
	}
	if s.options.Nodes == 0 {
		return login, nil
	}
	s.Nodes, err = nodesim.New(nodesim.Config{
		Gateway: s.GatewayURL, Nodes: s.options.Nodes, Speed: s.options.Speed, Seed: s.options.Seed,
		HotAfter: hotAfter, Clock: s.options.Clock, Log: s.log,
	})
	if err != nil {
		return Login{}, fmt.Errorf("simulated nodes: %w", err)
	}
	for i, ids := range s.Nodes.Rooms() {
		if err := person.Furnish(ctx, fmt.Sprintf("Server room %d", i+1), ids); err != nil {
			return Login{}, err
		}
	}
	s.run(ctx, "simulated nodes", s.Nodes.Run)
	return login, nil
}

// Person uses the API as somebody with a browser does.
type Person struct {
	base  string
	token string
}

// NewPerson returns somebody who has not signed in to the API at base yet.
func NewPerson(base string) *Person { return &Person{base: base} }

// SignIn logs in, registering first where that is needed.
func (p *Person) SignIn(ctx context.Context, login Login, username string) error {
	credentials := map[string]string{"email": login.Email, "password": login.Password}
	var granted struct {
		Token string `json:"access_token"`
	}
	status, err := p.Call(ctx, http.MethodPost, "/api/v1/customers/login", credentials, &granted)
	if err != nil && status != http.StatusUnauthorized {
		return err
	}
	if status == http.StatusUnauthorized {
		credentials["username"] = username
		if _, err := p.Call(ctx, http.MethodPost, "/api/v1/customers/register", credentials, nil); err != nil {
			return fmt.Errorf("register %s: %w", login.Email, err)
		}
		if _, err := p.Call(ctx, http.MethodPost, "/api/v1/customers/login", credentials, &granted); err != nil {
			return err
		}
	}
	p.token = granted.Token
	return nil
}

// Furnish makes a room with a sensor for each of the nodes that is not one yet.
func (p *Person) Furnish(ctx context.Context, room string, ids []string) error {
	var made struct {
		ID int64 `json:"id"`
	}
	for i, id := range ids {
		status, err := p.Call(ctx, http.MethodGet, "/api/v1/sensors/sensor/"+id, nil, nil)
		if err == nil {
			continue
		}
		if status != http.StatusNotFound {
			return err
		}
		if made.ID == 0 {
			if _, err := p.Call(ctx, http.MethodPost, "/api/v1/server_rooms/new_room", map[string]any{"name": room}, &made); err != nil {
				return err
			}
		}
		sensor := map[string]any{"id": id, "name": fmt.Sprintf("Rack %d", i+1), "type": nodeType, "room_id": made.ID}
		if _, err := p.Call(ctx, http.MethodPost, "/api/v1/sensors/new_sensor", sensor, nil); err != nil {
			return err
		}
	}
	return nil
}

// Call sends a JSON request and reads the answer into into, if that is not nil.
// Any status but 2xx is an error.
func (p *Person) Call(ctx context.Context, method, path string, body, into any) (int, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", method, path, err)
	}
	request, err := http.NewRequestWithContext(ctx, method, p.base+path, bytes.NewReader(encoded))
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", method, path, err)
	}
	request.Header.Set("Content-Type", "application/json")
	if p.token != "" {
		request.Header.Set("Authorization", "Bearer "+p.token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode > 299 {
		var problem struct {
			Detail string `json:"detail"`
		}
		_ = json.NewDecoder(response.Body).Decode(&problem) // the status says enough
		return response.StatusCode, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, problem.Detail)
	}
	if into != nil {
		if err := json.NewDecoder(response.Body).Decode(into); err != nil {
			return response.StatusCode, fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	return response.StatusCode, nil
}
