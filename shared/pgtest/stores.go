package pgtest

import (
	"github.com/jackc/pgx/v5/pgxpool"

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
