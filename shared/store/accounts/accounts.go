// Package accounts stores customers and what they own: API keys, rooms, sensors, gateways,
// and the audit log of every change. The API reads and writes it; ingest and detect read the
// keys of gateways.
package accounts

import "coldaisle.dev/shared/store"

// Store runs its statements on a database, or in a transaction of one.
type Store struct{ db *store.DB }

// New returns the store over a database or transaction.
func New(db *store.DB) Store { return Store{db} }
