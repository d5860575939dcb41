package announce

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	a := New(Config{}, time.Now, logging.Discard())
	a.state = State{Role: RoleStandby}
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.Collectors()...)
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	want := `# HELP gateway_role 1 for the role of this gateway in its network: active, standby or conflict.
# TYPE gateway_role gauge
gateway_role{role="active"} 0
gateway_role{role="conflict"} 0
gateway_role{role="standby"} 1
`
	must.Equal(t, "metrics", want, page.Body.String())
}
