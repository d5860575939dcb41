package auth

import (
	"net/http/httptest"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
)

// TestClientAddress takes the header as Google documents it and as it was seen, see clients, and what people make up.
func TestClientAddress(t *testing.T) {
	t.Parallel()
	const balancer = "34.117.9.1"
	none, cloud, behind := []string(nil), []string{"peer", balancer}, []string{"127.0.0.1", "10.0.0.0/8", "::1"}
	for name, test := range map[string]struct {
		trusted      []string
		peer         string
		forwardedFor []string
		want         string
	}{
		"nobody in between":                  {none, "203.0.113.7:4711", nil, "203.0.113.7/32"},
		"nobody in between, header made up":  {none, "203.0.113.7:4711", []string{"198.51.100.1"}, "203.0.113.7/32"},
		"IPv6 by its network":                {none, "[2001:db8:1:2:3:4:5:6]:4711", nil, "2001:db8:1:2::/64"},
		"IPv6 of a link":                     {none, "[fe80::1%eth0]:4711", nil, "fe80::/64"},
		"IPv4 within IPv6":                   {none, "[::ffff:203.0.113.7]:4711", nil, "203.0.113.7/32"},
		"run.app":                            {cloud, "169.254.169.126:80", []string{"203.0.113.7"}, "203.0.113.7/32"},
		"run.app, header made up":            {cloud, "169.254.169.126:80", []string{"198.51.100.1,203.0.113.7"}, "203.0.113.7/32"},
		"run.app, balancer made up":          {cloud, "169.254.169.126:80", []string{"198.51.100.1," + balancer + ",203.0.113.7"}, "203.0.113.7/32"},
		"load balancer":                      {cloud, "169.254.169.126:80", []string{"203.0.113.7," + balancer}, "203.0.113.7/32"},
		"load balancer, header made up":      {cloud, "169.254.169.126:80", []string{"198.51.100.1,203.0.113.7, " + balancer}, "203.0.113.7/32"},
		"load balancer, as seen":             {cloud, "169.254.169.126:80", []string{"203.0.113.7, " + balancer + ",203.0.113.7"}, "203.0.113.7/32"},
		"load balancer, in several headers":  {cloud, "169.254.169.126:80", []string{"198.51.100.1", "203.0.113.7", balancer}, "203.0.113.7/32"},
		"load balancer, IPv6 client":         {cloud, "169.254.169.126:80", []string{"2001:db8::7," + balancer}, "2001:db8::/64"},
		"load balancer, nonsense made up":    {cloud, "169.254.169.126:80", []string{"' OR 1=1,203.0.113.7," + balancer}, "203.0.113.7/32"},
		"no header":                          {cloud, "169.254.169.126:80", nil, "169.254.169.126/32"},
		"nothing but nonsense":               {cloud, "169.254.169.126:80", []string{"unknown"}, "169.254.169.126/32"},
		"nothing but proxies":                {cloud, "169.254.169.126:80", []string{balancer}, balancer + "/32"},
		"an own proxy":                       {behind, "127.0.0.1:4711", []string{"198.51.100.1, 203.0.113.7"}, "203.0.113.7/32"},
		"two own proxies":                    {behind, "127.0.0.1:4711", []string{"198.51.100.1, 203.0.113.7, 10.1.2.3"}, "203.0.113.7/32"},
		"past the own proxy, header made up": {behind, "192.0.2.1:4711", []string{"203.0.113.7"}, "192.0.2.1/32"},
		"a header as long as they may be":    {cloud, "169.254.169.126:80", []string{strings.Repeat("198.51.100.1,", 1000) + "203.0.113.7"}, "203.0.113.7/32"},
	} {
		c := must.Get(NewClients(test.trusted))(t)
		request := httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
		request.RemoteAddr = test.peer
		request.Header["X-Forwarded-For"] = test.forwardedFor
		must.Equal(t, name, test.want, c.of(request).String())
	}
	for _, wrong := range []string{"", "somebody", "10.0.0.0/33", "10.0.0", "http://10.0.0.1"} {
		if _, err := NewClients([]string{wrong}); err == nil || !strings.HasPrefix(err.Error(), "TRUSTED_PROXIES") {
			t.Errorf("%q: %v, want a line about TRUSTED_PROXIES", wrong, err)
		}
	}
}
