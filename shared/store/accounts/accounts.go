// Package accounts stores customers and what they own: API keys, rooms, sensors, gateways,
// and the audit log of every change. The API reads and writes it; ingest and detect read the
// keys of gateways.
package accounts

import "coldaisle.dev/shared/store"

// Store runs its statements on a database, or in a transaction of one.
type Store struct{ db *store.DB }

// New returns the store over a database or transaction.
func New(db *store.DB) Store { return Store{db} }

// refused names the rule that a change breaks, if the schema refused it.
func refused(err error) error {
	switch {
	case store.Violates(err, "customers_email_key"), store.Violates(err, "persons_email_key"):
		return store.ErrEmailTaken
	case store.Violates(err, "customers_username_key"):
		return store.ErrUsernameTaken
	case store.Violates(err, "open_holds_holder_key"), store.Violates(err, "sensors_customer_node_key"):
		return store.ErrSensorExists
	case store.Violates(err, "sensors_room_fkey"): // the room was deleted meanwhile
		return store.ErrNoRoom
	case store.Violates(err, "corrections_ahead"), store.Violates(err, "corrections_withdrawable"):
		return store.ErrCorrectionSoon
	case store.Violates(err, "corrections_from_key"):
		return store.ErrCorrectionExists
	default:
		return err
	}
}
