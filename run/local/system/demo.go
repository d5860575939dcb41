package system

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"

	"coldaisle.dev/edge-gateway/api"
	"coldaisle.dev/edge-gateway/nodesim"
)

// Credentials are what a user signs in with.
type Credentials struct{ Email, Password string }

const demoPerRoom = 8 // nodes of a room that has a past

// Demo creates a customer whose sensors are the simulated nodes, room by room, and
// starts the nodes. It uses the API, as a user does. A second start finds what the
// first one created. Without nodes the customer may have other credentials meanwhile: then
// none are returned.
func (s *System) Demo(ctx context.Context) (Credentials, error) {
	user, credentials, err := s.demoUser(ctx)
	if s.options.Nodes == 0 && errors.Is(err, errTaken) {
		return Credentials{}, nil // somebody has changed them, and needs nothing of us
	}
	if err != nil || s.options.Nodes == 0 {
		return credentials, err
	}
	simulated := nodesim.Config{
		Gateway: s.GatewayURL, Nodes: s.options.Nodes, Speed: s.options.Speed, Seed: s.options.Seed,
		Clock: s.options.Clock, Log: s.log,
	}
	if s.options.hasPast() {
		simulated.PerRoom, simulated.Hosts, simulated.Began = demoPerRoom, 1, s.options.Clock().Add(-s.options.History)
	}
	s.Nodes, err = nodesim.New(simulated)
	if err != nil {
		return Credentials{}, fmt.Errorf("simulated nodes: %w", err)
	}
	if s.options.hasPast() {
		s.Nodes.Sow(pastFaults(simulated.Began, s.options.History)...)
	}
	for i, ids := range s.Nodes.Rooms() {
		if err := user.CreateRoom(ctx, fmt.Sprintf("Server room %d", i+1), ids); err != nil {
			return Credentials{}, err
		}
	}
	s.runComponent(ctx, "simulated nodes", func(ctx context.Context) error {
		select {
		case <-s.pastOver:
		default:
			if err := s.demoPast(ctx, user); ctx.Err() != nil {
				return nil //nolint:nilerr // the next start goes on
			} else if err != nil {
				return err
			}
			close(s.pastOver)
		}
		if s.options.hasPast() {
			s.Nodes.Sow(presentFaults(s.options.Clock())...)
		} else {
			s.Nodes.Sow(hotFaults(s.options.Clock(), cmp.Or(s.options.Speed, 1))...)
		}
		return s.Nodes.Run(ctx)
	})
	return credentials, nil
}

// demoUser signs in as the demo customer, who is registered first if need be.
func (s *System) demoUser(ctx context.Context) (*APIUser, Credentials, error) {
	file := filepath.Join(s.options.DataDir, "demo_password")
	password, err := readOrCreateSecret(file, func() string { return "Aa1-" + rand.Text() })
	if err != nil {
		return nil, Credentials{}, err
	}
	credentials := Credentials{Email: "demo@example.com", Password: password}
	user := &APIUser{Base: s.APIURL}
	if err = user.SignIn(ctx, credentials, "demouser"); errors.Is(err, errTaken) {
		err = fmt.Errorf("%s has to have the password: %w", file, err)
	}
	return user, credentials, err
}

// APIUser is a client of the API that signs in as a user does.
type APIUser struct {
	Base   string      // the API's URL
	ID     int64       // of the customer, once signed in
	header http.Header // which says who it is
}

// errTaken says that the customer exists with other credentials.
var errTaken = errors.New("it has another password or address")

// SignIn logs in, and registers first when the customer does not exist.
func (p *APIUser) SignIn(ctx context.Context, credentials Credentials, username string) error {
	body := map[string]string{"email": credentials.Email, "password": credentials.Password}
	var granted struct {
		Token      string `json:"access_token"`
		CustomerID int64  `json:"customer_id"`
	}
	err := p.Call(ctx, http.MethodPost, "/api/v1/customers/login", body, &granted)
	if api.IsStatus(err, http.StatusUnauthorized) {
		body["username"] = username
		if err = p.Call(ctx, http.MethodPost, "/api/v1/customers/register", body, nil); api.IsStatus(err, http.StatusBadRequest) {
			err = fmt.Errorf("%w: %w", errTaken, err)
		}
		if err != nil {
			return fmt.Errorf("register %s: %w", credentials.Email, err)
		}
		err = p.Call(ctx, http.MethodPost, "/api/v1/customers/login", body, &granted)
	}
	if err != nil {
		return err
	}
	p.header, p.ID = http.Header{"Authorization": {"Bearer " + granted.Token}}, granted.CustomerID
	return nil
}

// CreateRoom creates a room with a sensor for each node that is not a sensor yet.
func (p *APIUser) CreateRoom(ctx context.Context, room string, ids []string) error {
	var created struct {
		ID int64 `json:"id"`
	}
	for i, id := range ids {
		err := p.Call(ctx, http.MethodGet, "/api/v1/sensors/sensor/"+id, nil, nil)
		if err == nil {
			continue
		}
		if !api.IsStatus(err, http.StatusNotFound) {
			return err
		}
		if created.ID == 0 {
			if err := p.Call(ctx, http.MethodPost, "/api/v1/server_rooms/new_room", map[string]any{"name": room}, &created); err != nil {
				return err
			}
		}
		sensor := map[string]any{"id": id, "name": fmt.Sprintf("Rack %d", i+1), "type": "ESP32-DHT22", "room_id": created.ID}
		if err := p.Call(ctx, http.MethodPost, "/api/v1/sensors/new_sensor", sensor, nil); err != nil {
			return err
		}
	}
	return nil
}

// Call sends a JSON request as the user, and decodes the answer into into, if that is not nil.
func (p *APIUser) Call(ctx context.Context, method, path string, body, into any) error {
	_, err := api.Call(ctx, http.DefaultClient, method, p.Base+path, p.header, body, into)
	return err
}
