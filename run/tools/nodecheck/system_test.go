package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/run/local/pushbridge"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// TestReadingOfTheNodeReachesItsOwner takes the reference node's readings through the whole
// local system: to the API, and a hot one to an alert record and an incident.
func TestReadingOfTheNodeReachesItsOwner(t *testing.T) {
	t.Parallel()
	s, err := system.Start(t.Context(), system.Options{
		DataDir: t.TempDir(), DatabaseURL: pgtest.URL(t), Clock: time.Now, Log: logging.Discard(), PasswordCost: 4,
		Bridge: pushbridge.Config{MinBackoff: 5 * time.Millisecond, MaxBackoff: time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	token := ""
	call := func(method, path, body string, answer any) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, s.APIURL+"/api/v1/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		content, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode >= 300 {
			t.Fatalf("%s: %s %s %v", path, response.Status, content, err)
		}
		if err := json.Unmarshal(content, answer); err != nil {
			t.Fatalf("%s: %s: %v", path, content, err)
		}
	}
	const login = `{"email":"rack@example.com","username":"operator","password":"Passw0rd1"}`
	var ignored any
	call(http.MethodPost, "customers/register", login, &ignored)
	var signedIn struct {
		Token    string `json:"access_token"`
		Customer int    `json:"customer_id"`
	}
	call(http.MethodPost, "customers/login", login, &signedIn)
	token = signedIn.Token
	var room struct{ ID int }
	call(http.MethodPost, "server_rooms/new_room", `{"name":"Vault"}`, &room)
	const node = "linux-a4cf1203b1c8"
	call(http.MethodPost, "sensors/new_sensor", fmt.Sprintf(`{"id":%q,"name":"Rack 1","type":"ESP32-DHT22","room_id":%d}`, node, room.ID), &ignored)

	host, port, err := net.SplitHostPort(strings.TrimPrefix(s.GatewayURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	measured := 0
	power(t, func(question []string) (string, bool) {
		switch question[0] {
		case "sleep":
			return "", measured < 3
		case "measure":
			measured++
			if measured == 3 {
				return "55.2 41", true
			}
			return "24.5 41", true
		default:
			return "1", true
		}
	}, fmt.Sprintf("\nGATEWAY = %q\nPORT = %s\n", host, port))
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	if err := s.Bridge.Drain(ctx); err != nil {
		t.Fatal(err)
	}

	var latest struct{ Temperature, Humidity float64 }
	call(http.MethodGet, "data/latest/"+node, "", &latest)
	if latest.Temperature != 55.2 || latest.Humidity != 41 {
		t.Errorf("the newest reading is %+v", latest)
	}
	var alerts []struct{ Message string }
	call(http.MethodGet, "alerts/active", "", &alerts)
	if len(alerts) != 1 || alerts[0].Message != "High temperature detected: 55.2°C (limit 50.0°C)" {
		t.Errorf("alerts %+v", alerts)
	}
	var incidents []struct {
		Kind, State, Quantity string
		Peak                  float64
		Sensor                string `json:"sensor_id"`
		Room                  string `json:"room_name"`
	}
	call(http.MethodGet, "incidents?state=lasting", "", &incidents)
	if len(incidents) != 1 || incidents[0].Kind != "threshold" || incidents[0].Quantity != "temperature" ||
		incidents[0].Peak != 55.2 || incidents[0].Sensor != node || incidents[0].Room != "Vault" {
		t.Errorf("incidents %+v", incidents)
	}
}
