package api

import (
	"errors"
	"net/http"

	"coldaisle.dev/shared/store"
)

// storeErrors returns the function that turns the store's errors into answers. It
// is the one place that does.
func storeErrors() func(error) (*Error, bool) {
	table := []struct {
		err    error
		answer *Error
	}{
		{store.ErrNoCustomer, notFound("Customer not found")},
		{store.ErrEmailTaken, badRequest("Email already registered")},
		{store.ErrUsernameTaken, badRequest("Username already taken")},
		{store.ErrNoRoom, notFound("Room not found")},
		{store.ErrNoSensor, notFound("Sensor not found")},
		{store.ErrSensorExists, badRequest("Sensor already exists")},
		{store.ErrNoAlert, notFound("Alert not found")},
		{store.ErrNoPrediction, notFound("Prediction not found")},
		{store.ErrPredictionExists, badRequest("Prediction already exists")},
		{store.ErrPredictionUsed, badRequest("Prediction already used in training")},
		{store.ErrNoRun, notFound("Training run not found")},
		{store.ErrNoSensors, badRequest("No sensors to learn from")},
		{store.ErrRunning, newError(http.StatusConflict, "A training run is already running")},
	}
	return func(err error) (*Error, bool) {
		if soon, ok := errors.AsType[*store.TooSoonError](err); ok {
			return tooManyRequests("Only one training run in 10 minutes can be started by hand", soon.Wait), true
		}
		for _, known := range table {
			if errors.Is(err, known.err) {
				return known.answer, true
			}
		}
		return nil, false
	}
}
