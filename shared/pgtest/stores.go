package pgtest

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
)

// Stores are all stores of a database, for tests that need several.
type Stores struct {
	*store.DB
	accountsStore
	incidentsStore
	learningStore
	pipelineStore
}

type (
	accountsStore  = accounts.Store
	incidentsStore = incidents.Store
	learningStore  = learning.Store
	pipelineStore  = pipeline.Store
)

// NewStores returns the stores of a database.
func NewStores(pool *pgxpool.Pool) Stores {
	db := store.New(pool)
	return Stores{db, accounts.New(db), incidents.New(db), learning.New(db), pipeline.New(db)}
}

// Owner makes a customer, and a room with sensors.
func (s Stores) Owner(tb testing.TB, name string, sensors ...string) (customer, room int64) {
	tb.Helper()
	c := must.Get(s.CreateCustomer(tb.Context(), accounts.NewCustomer{Email: name + "@example.com", Username: name, PasswordHash: "x"}))(tb)
	r := must.Get(s.CreateRoom(tb.Context(), c.ID, "room"))(tb)
	s.AddSensors(tb, c.ID, r.ID, sensors...)
	return c.ID, r.ID
}

// AddSensors makes sensors in a room.
func (s Stores) AddSensors(tb testing.TB, customer, room int64, ids ...string) {
	tb.Helper()
	for _, id := range ids {
		must.Get(s.CreateSensor(tb.Context(), customer, accounts.NewSensor{ID: id, Name: id, Type: "T", RoomID: room}))(tb)
	}
}
