// Package incidents stores rules and what they find: alerts, incidents, maintenance windows,
// silences. detect judges by it, storealert adds alerts, the API shows and changes all of it.
package incidents

import "coldaisle.dev/shared/store"

// Store has the statements. It runs them on a database, or in a transaction of one.
type Store struct{ db *store.DB }

// New returns the store over a database or transaction.
func New(db *store.DB) Store { return Store{db} }
