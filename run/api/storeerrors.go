package api

import (
	"net/http"

	"coldaisle.dev/shared/store"
)

// storeError maps an error of the store to its answer.
type storeError struct {
	err    error
	answer *Error
}

// storeErrors is the one place that turns the store's errors into statuses.
func storeErrors() []storeError {
	return []storeError{
		{store.ErrNoCustomer, notFound(detailNoCustomer)},
		{store.ErrEmailTaken, badRequest(detailEmailTaken)},
		{store.ErrUsernameTaken, badRequest(detailUsernameTaken)},
		{store.ErrNoRoom, notFound(detailNoRoom)},
		{store.ErrNoSensor, notFound(detailNoSensor)},
		{store.ErrSensorExists, badRequest(detailSensorExists)},
		{store.ErrNoAlert, notFound(detailNoAlert)},
		{store.ErrNoPrediction, notFound(detailNoPrediction)},
		{store.ErrPredictionExists, badRequest(detailPredictionExists)},
		{store.ErrPredictionUsed, badRequest(detailPredictionUsed)},
		{store.ErrNoRun, notFound(detailNoTrainingRun)},
		{store.ErrNoSensors, badRequest(detailNoSensors)},
		{store.ErrRunning, newError(http.StatusConflict, detailTrainingUnderWay)},
	}
}
