package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"coldaisle.dev/edge-gateway/gateway"
)

// TestNodesSendNoDrills holds that the doors of the network refuse a drill, and that a gateway
// whose messages nobody could tell from another's sends none.
func TestNodesSendNoDrills(t *testing.T) {
	t.Parallel()
	site, published := newTimedSite(gateway.Config{})
	for path, body := range map[string]string{
		"/api/v1/message": `{"id":"m1","node_id":"n1","temperature":20,"humidity":40,"drill":"QJ5R2"}`,
		"/drill":          "QJ5R2",
	} {
		if answer := post(t, site, path, body); answer.Code != http.StatusBadRequest && answer.Code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
	}
	answer := post(t, site.Control(), "/drill", "QJ5R2")
	if answer.Code != http.StatusInternalServerError || !strings.Contains(answer.Body.String(), "not enrolled") {
		t.Errorf("an open gateway: %d %s", answer.Code, answer.Body)
	}
	if published.tried > 0 {
		t.Errorf("%d messages were published", published.tried)
	}
}
