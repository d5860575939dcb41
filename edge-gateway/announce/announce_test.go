package announce

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"coldaisle.dev/shared/logging"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	a, err := New(Config{Name: "monitor-gateway", Port: 8080}, time.Now, logging.Discard())
	if err != nil {
		t.Fatal(err)
	}
	a.state = State{Role: RoleStandby, Conflicts: 7, Links: []LinkState{{Interface: "eth0", Peers: []string{"192.168.1.20"}}}}
	registry := prometheus.NewRegistry()
	registry.MustRegister(a)
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	want := `# HELP gateway_name_conflicts_total Claims of the gateway's names by others.
# TYPE gateway_name_conflicts_total counter
gateway_name_conflicts_total 7
# HELP gateway_pair_peers Other gateways of the same enrolment on an interface.
# TYPE gateway_pair_peers gauge
gateway_pair_peers{interface="eth0"} 1
# HELP gateway_role 1 for the part that this gateway has among those of its network: active, standby or conflict.
# TYPE gateway_role gauge
gateway_role{role="active"} 0
gateway_role{role="conflict"} 0
gateway_role{role="standby"} 1
`
	if diff := cmp.Diff(want, page.Body.String()); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}
