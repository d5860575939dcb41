package wire_test

import (
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/wire"
)

// FuzzDecodeRetraining holds that a request is refused, or names a run and
// survives being written and read again.
func FuzzDecodeRetraining(f *testing.F) {
	f.Add([]byte(`{"training_run_id":7,"triggered_by":"manual","validated_count":0,"requested_at":"2026-03-01T12:00:00Z"}`))
	f.Add([]byte(`{"training_run_id":0}`))
	f.Add([]byte(`{"training_run_id":1,"requested_at":"0000-01-01T00:00:00+23:59"}`))
	f.Fuzz(func(t *testing.T, encoded []byte) {
		first, err := wire.DecodeRetraining(encoded)
		if err != nil {
			return
		}
		must.Hold(t, first.TrainingRunID >= 1, "run %d was taken", first.TrainingRunID)
		again := must.Get(wire.EncodeRetraining(first))(t)
		second := must.Get(wire.DecodeRetraining(again))(t)
		must.Equal(t, "two runs (-first +second)", first, second)
	})
}
