package api

import (
	"net/http"

	"coldaisle.dev/shared/store"
)

// storeFault is an error of the store that a caller is told about.
type storeFault struct {
	err   error
	fault *fault
}

// storeFaults is the one place that turns the store's errors into statuses.
func storeFaults() []storeFault {
	return []storeFault{
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
		{store.ErrRunning, newFault(http.StatusConflict, detailTrainingUnderWay)},
	}
}
