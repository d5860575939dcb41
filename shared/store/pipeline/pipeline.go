// Package pipeline stores what each reading touches: the status of its sensor and the state
// of its node. ingest writes it, detect and the API read it.
package pipeline

import "coldaisle.dev/shared/store"

// Store has the statements. It runs them on a database, or in a transaction of one.
type Store struct{ db *store.DB }

// New returns the store over a database or transaction.
func New(db *store.DB) Store { return Store{db} }
