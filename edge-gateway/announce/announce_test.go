package announce

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	a := must.Get(New(Config{Name: "monitor-gateway", Port: 8080}, time.Now, logging.Discard()))(t)
	a.state = State{Role: RoleStandby}
	registry := prometheus.NewRegistry()
	registry.MustRegister(a)
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	want := `# HELP gateway_role 1 for the part that this gateway has among those of its network: active, standby or conflict.
# TYPE gateway_role gauge
gateway_role{role="active"} 0
gateway_role{role="conflict"} 0
gateway_role{role="standby"} 1
`
	must.Equal(t, "metrics", want, page.Body.String())
}

func TestConfigBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		length, port int
		valid        bool
	}{{60, 1, true}, {60, 65535, true}, {61, 1, false}, {0, 1, false}, {60, 0, false}, {60, 65536, false}} {
		if _, err := New(Config{Name: strings.Repeat("n", c.length), Port: c.port}, time.Now, logging.Discard()); (err == nil) != c.valid {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
