package system_test

import (
	"fmt"
	"net/http"
	"testing"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
)

// TestEnrolledGateway starts the local system with its gateway enrolled to the demo
// customer, twice over one folder and database: a reading is in the customer's own
// channel, and the gateway stays the same until it is revoked.
func TestEnrolledGateway(t *testing.T) {
	t.Parallel()
	folder, database := t.TempDir(), pgtest.URL(t)
	begin := func(enrol bool) (*system.System, *user) {
		t.Helper()
		s := start(t, func(o *system.Options) { o.DataDir, o.DatabaseURL, o.Enrol = folder, database, enrol })
		credentials := must.Get(s.Demo(t.Context()))(t)
		owner := &user{system.APIUser{Base: s.APIURL}, t}
		must.Do(t, owner.SignIn(t.Context(), credentials, ""))
		return s, owner
	}
	// send has a node measure, and returns the channel in which the reading is stored.
	send := func(s *system.System, node string) (channel int64) {
		t.Helper()
		nodeAt(t, s).do(http.MethodPost, "/api/v1/message", fmt.Sprintf(`{"id":"m1","node_id":%q,"temperature":21,"humidity":40}`, node), 200)
		must.Eventually(t, "the reading of "+node+" is stored", func() bool {
			return s.Pool.QueryRow(t.Context(), `SELECT customer_id FROM sensor_data.readings WHERE node_id = $1`, node).Scan(&channel) == nil
		})
		return channel
	}
	gateways := func(owner *user) []any {
		t.Helper()
		return list(t, owner.do(http.MethodGet, "/api/v1/gateways", "", 200))
	}
	first, owner := begin(true)
	demo := owner.ID
	must.Equal(t, "the reading is in channel", demo, send(first, "signed-1"))
	all := gateways(owner)
	if len(all) != 1 || field[string](t, all[0], "version") != "local" {
		t.Fatalf("gateways %v", all)
	}
	must.Do(t, first.Stop())

	again, owner := begin(true)
	if same := gateways(owner); len(same) != 1 || field[string](t, same[0], "id") != field[string](t, all[0], "id") {
		t.Errorf("after a restart: %v, before %v", same, all)
	}
	must.Equal(t, "after a restart the reading is in channel", demo, send(again, "signed-2"))
	owner.do(http.MethodDelete, "/api/v1/gateways/"+field[string](t, all[0], "id"), "", 204)
	must.Do(t, again.Stop())
	told, _ := begin(true) // of the revocation, by its first status
	must.Do(t, told.Stop())

	anew, owner := begin(true)
	must.Equal(t, "gateways after a revocation", 2, len(gateways(owner)))
	must.Equal(t, "after a revocation the reading is in channel", demo, send(anew, "signed-3"))
	must.Do(t, anew.Stop())
	open, _ := begin(false)
	must.Equal(t, "without --enrol the reading is in channel", int64(0), send(open, "open-1"))
}

// TestDemoCustomerChangesThePassword starts again, enrolled, over data whose demo customer has
// another password than the first start made.
func TestDemoCustomerChangesThePassword(t *testing.T) {
	t.Parallel()
	folder, database := t.TempDir(), pgtest.URL(t)
	begin := func() *system.System {
		return start(t, func(o *system.Options) { o.DataDir, o.DatabaseURL, o.Enrol = folder, database, true })
	}
	first := begin()
	owner := &user{system.APIUser{Base: first.APIURL}, t}
	must.Do(t, owner.SignIn(t.Context(), must.Get(first.Demo(t.Context()))(t), ""))
	owner.do(http.MethodPatch, fmt.Sprintf("/api/v1/customers/%d", owner.ID), `{"password":"My0wnPassword"}`, 200)
	must.Do(t, first.Stop())

	must.Equal(t, "credentials to show", system.Credentials{}, must.Get(begin().Demo(t.Context()))(t))
}
