package train

import (
	"context"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/learning"
)

// TestClaimIsRenewed holds that a trainer at work keeps its run however long it takes, and
// learns when it has lost it.
func TestClaimIsRenewed(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	runs := learning.New(store.New(pool))
	var run int64
	must.Do(t, pool.QueryRow(t.Context(), `INSERT INTO model_training_runs (triggered_by) VALUES ('manual') RETURNING id`).Scan(&run))
	claim := must.Get(runs.ClaimRun(t.Context(), run))(t)
	set := func(change string) {
		t.Helper()
		must.Get(pool.Exec(t.Context(), "UPDATE model_training_runs SET "+change))(t)
	}
	set("claimed_at = now() - interval '1 hour'")
	held, release := renewClaim(t.Context(), runs, claim, 5*time.Millisecond)
	must.Eventually(t, "the claim is renewed", func() (fresh bool) {
		must.Do(t, pool.QueryRow(t.Context(), "SELECT claimed_at > now() - interval '1 minute' FROM model_training_runs").Scan(&fresh))
		return fresh
	})
	must.Do(t, context.Cause(held))
	set("attempts = attempts + 1") // as another's claim
	must.Eventually(t, "a claim that is lost ends", func() bool { return held.Err() != nil })
	must.Fail(t, "a claim that is lost", context.Cause(held), store.ErrRunEnded)
	release()

	held, release = renewClaim(t.Context(), runs, claim, time.Hour)
	release()
	must.Fail(t, "released", context.Cause(held), context.Canceled)
}
