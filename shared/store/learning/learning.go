// Package learning stores predictions and verdicts, training runs, and what detection has
// learned of nodes. detect, train and the API use it.
package learning

import "coldaisle.dev/shared/store"

// Store runs its statements on a database, or in a transaction of one.
type Store struct{ db *store.DB }

// New returns the store over a database or transaction.
func New(db *store.DB) Store { return Store{db} }
