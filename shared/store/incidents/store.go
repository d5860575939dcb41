// Package incidents stores rules, excursions and incidents, alerts, silences and maintenance
// windows. detect judges readings here, storealert adds alerts, the API shows and changes all of it.
package incidents

import "coldaisle.dev/shared/store"

// Store runs its statements on a database, or in a transaction of one.
type Store struct{ db *store.DB }

// New returns the store over a database or transaction.
func New(db *store.DB) Store { return Store{db} }
