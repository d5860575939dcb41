package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// DefaultFalseAlarms is how many false alarms of learning customers stand who never said
// so, per node and month.
const DefaultFalseAlarms = 1.0

// FalseAlarms returns how many false alarms per node and month a customer stands.
func (s *Store) FalseAlarms(ctx context.Context, customerID int64) (float64, error) {
	type row struct{ Budget float64 }
	found, err := queryOne[row](ctx, s, ErrNotFound, `
		SELECT COALESCE((SELECT false_alarms_per_month FROM learning_settings WHERE customer_id = @customer), @default) AS budget`,
		pgx.StrictNamedArgs{"customer": customerID, "default": DefaultFalseAlarms})
	if err != nil {
		return 0, fmt.Errorf("learning settings of customer %d: %w", customerID, err)
	}
	return found.Budget, nil
}

// SetFalseAlarms sets it, 0.3 to 30.
func (s *Store) SetFalseAlarms(ctx context.Context, customerID int64, budget float64) error {
	_, err := s.pool.Exec(ctx, `
		INSERT INTO learning_settings (customer_id, false_alarms_per_month)
		VALUES (@customer, @budget)
		ON CONFLICT (customer_id) DO UPDATE SET false_alarms_per_month = EXCLUDED.false_alarms_per_month`,
		pgx.StrictNamedArgs{"customer": customerID, "budget": budget})
	return wrap(err, "learning settings of customer %d", customerID)
}
