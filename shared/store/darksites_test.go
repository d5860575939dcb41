package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
)

// TestDarkSites has several sites, of which one after the other falls silent.
func TestDarkSites(t *testing.T) {
	t.Parallel()
	db := open(t)
	for _, id := range []string{"n1", "n2", "never"} {
		db.sensor(t, db.anna, db.annasRoom, id)
	}
	db.sensor(t, db.bruno, db.brunosRoom, "theirs")
	keep := func(node string, channel int64, minute int) {
		t.Helper()
		r := judged(node, 60*minute, 20).Reading
		r.Channel = reading.Channel(channel)
		must.Do(t, db.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r}}))
	}
	at := func(minute int) time.Time { return instant().Add(time.Duration(minute) * time.Minute) }
	want := func(when string, minute int, sites ...incidents.DarkSite) {
		t.Helper()
		dark := must.Get(db.DarkSites(t.Context(), at(minute)))(t)
		for i := range dark {
			dark[i].Since = dark[i].Since.UTC()
		}
		must.Equal(t, when, sites, dark, cmpopts.EquateEmpty())
	}
	keep("n1", 0, 0)
	keep("n2", 0, 10)
	keep("theirs", 0, 20)
	basement, attic, revoked := db.enrolled(t, db.anna), db.enrolled(t, db.anna), db.enrolled(t, db.anna)
	seen := func(g accounts.Gateway, minute int) {
		t.Helper()
		must.Get(db.pool.Exec(t.Context(), `UPDATE gateways SET last_seen = $2 WHERE id = $1`, g.ID, at(minute)))(t)
	}
	seen(basement, 0)
	seen(attic, 20)
	seen(revoked, 0)
	must.Do(t, db.RevokeGateway(t.Context(), db.anna, revoked.ID))

	annas := incidents.DarkSite{CustomerID: db.anna, Since: at(10)}
	cellar := incidents.DarkSite{CustomerID: db.anna, GatewayID: basement.ID, Since: at(0)}
	want("all are well", 14)
	want("one gateway of two, while others go on", 24, cellar)
	want("one node of two sent within 15 minutes", 20, cellar)
	want("the open site of a customer too", 34, annas, cellar)
	want("given up after a month", 31*24*60)

	keep("theirs", db.bruno, 25) // through an enrolled gateway from now on
	seen(attic, 60)
	want("after enrolment", 60, annas, cellar)
	must.Do(t, db.RecordProbe(t.Context(), at(50), at(50)))
	want("the service is late itself", 60, cellar)
}
