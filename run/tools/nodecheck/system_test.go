package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// TestReadingOfTheNodeReachesItsOwner takes the reference node's readings through the whole
// local system: to the API, and a hot one to an alert record and an incident.
func TestReadingOfTheNodeReachesItsOwner(t *testing.T) {
	t.Parallel()
	s, err := system.Start(t.Context(), system.Options{
		DataDir: t.TempDir(), DatabaseURL: pgtest.URL(t), Clock: time.Now, Log: logging.Discard(), PasswordCost: 4,
		Delivery: queue.Policy{MinBackoff: 5 * time.Millisecond, MaxBackoff: time.Second},
	})
	must.Do(t, err)
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	user := system.NewAPIUser(s.APIURL)
	const node = "linux-a4cf1203b1c8"
	err = user.SignIn(t.Context(), system.Credentials{Email: "rack@example.com", Password: "Passw0rd1"}, "operator")
	must.Do(t, errors.Join(err, user.CreateRoom(t.Context(), "Vault", []string{node})))
	get := func(path string, answer any) {
		t.Helper()
		must.Get(user.Call(t.Context(), http.MethodGet, "/api/v1/"+path, nil, answer))(t)
	}
	host, port, err := net.SplitHostPort(strings.TrimPrefix(s.GatewayURL, "http://"))
	must.Do(t, err)
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
	must.Do(t, s.Queue.Drain(ctx))

	var latest struct{ Temperature, Humidity float64 }
	get("data/latest/"+node, &latest)
	if latest.Temperature != 55.2 || latest.Humidity != 41 {
		t.Errorf("the newest reading is %+v", latest)
	}
	var alerts []struct{ Message string }
	get("alerts/active", &alerts)
	if len(alerts) != 1 || alerts[0].Message != "High temperature detected: 55.2°C (limit 50.0°C)" {
		t.Errorf("alerts %+v", alerts)
	}
	var incidents []struct {
		Kind, State, Quantity string
		Peak                  float64
		Sensor                string `json:"sensor_id"`
		Room                  string `json:"room_name"`
	}
	get("incidents?state=lasting", &incidents)
	if len(incidents) != 1 || incidents[0].Kind != "threshold" || incidents[0].Quantity != "temperature" ||
		incidents[0].Peak != 55.2 || incidents[0].Sensor != node || incidents[0].Room != "Vault" {
		t.Errorf("incidents %+v", incidents)
	}
}
