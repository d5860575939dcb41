// Package learning stores predictions and verdicts, training runs, and what detection has
// learned of nodes. detect, train and the API use it.
package learning

import (
	"context"

	"coldaisle.dev/shared/store"
)

// Store runs its statements on a database, or in a transaction of one.
type Store struct{ db *store.DB }

// New returns the store over a database or transaction.
func New(db *store.DB) Store { return Store{db} }

// DefaultFalseAlarms is the default budget of false alarms, per node and month.
const DefaultFalseAlarms = 1.0

// FalseAlarms returns a customer's budget of false alarms per node and month.
func (s Store) FalseAlarms(ctx context.Context, customerID int64) (float64, error) {
	return store.Value[float64](ctx, s.db, store.ErrNotFound, `
		SELECT COALESCE((SELECT false_alarms_per_month FROM learning_settings WHERE customer_id = @customer), @default)`,
		store.Args{"customer": customerID, "default": DefaultFalseAlarms}, "learning settings of customer %d", customerID)
}

// SetFalseAlarms sets the budget, 0.3 to 30.
func (s Store) SetFalseAlarms(ctx context.Context, customerID int64, budget float64) error {
	return s.db.Exec(ctx, `
		INSERT INTO learning_settings (customer_id, false_alarms_per_month)
		VALUES (@customer, @budget)
		ON CONFLICT (customer_id) DO UPDATE SET false_alarms_per_month = EXCLUDED.false_alarms_per_month`,
		store.Args{"customer": customerID, "budget": budget}, "learning settings of customer %d", customerID)
}
