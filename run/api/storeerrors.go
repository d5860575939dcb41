package api

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
)

// storeErrors returns the function that turns the stores' errors into answers; no other
// place does.
func storeErrors(maxUnreported int) func(error) (*rest.Error, bool) {
	table := []struct {
		err    error
		answer *rest.Error
	}{
		{store.ErrLastOwner, rest.Conflict("The account needs an owner; make somebody else one first")},
		{store.ErrTooManyPersons, rest.BadRequest(fmt.Sprintf("At most %d persons, open invitations included", accounts.MaxPersons))},
		{store.ErrEmailTaken, rest.BadRequest("Email already registered")},
		{store.ErrUsernameTaken, rest.BadRequest("Username already taken")},
		{store.ErrCorrectionExists, rest.Conflict("The sensor has a correction from that time; withdraw it, or add one from another time")},
		{store.ErrTooManyCorrections, rest.BadRequest(fmt.Sprintf("At most %d corrections of a sensor", accounts.MaxCorrections))},
		{store.ErrSensorExists, rest.BadRequest("Sensor already exists")},
		{store.ErrTooManyGateways, rest.BadRequest(fmt.Sprintf("At most %d gateways, and %d whose code waits; revoke some", accounts.MaxGateways, accounts.MaxEnrolmentCodes))},
		{store.ErrTooManyUnreported, rest.BadRequest(fmt.Sprintf("At most %d sensors may wait for their first reading; enrol a gateway to have more", maxUnreported))},
		{store.ErrGatewayEnrolled, rest.Conflict("The code has enrolled another gateway")},
		{store.ErrStatusReplayed, rest.Conflict("This status was received before")},
		{store.ErrTooManyAPIKeys, rest.BadRequest(fmt.Sprintf("At most %d API keys; delete some", accounts.MaxAPIKeys))},
		{store.ErrTooManyWatches, rest.BadRequest(fmt.Sprintf("At most %d watches; remove some", accounts.MaxWatches))},
		{store.ErrTooManyAnswers, rest.ErrTooManyAnswers},
		{incidents.ErrIncidentOver, rest.Conflict("The incident is over")},
		{incidents.ErrNobodyHasIt, rest.Conflict("Nobody has the incident")},
		{incidents.ErrOtherRooms, rest.Forbidden("The incident concerns rooms that the key does not cover")},
		{incidents.ErrTooManyDrills, rest.TooManyRequests(fmt.Sprintf("At most %d drills in a day", incidents.MaxDrills), time.Hour)},
		{incidents.ErrAfterLast, rest.BadRequest("after: is beyond the last change of this account")},
		{incidents.ErrThresholdRule, rest.BadRequest("Only the limit of a threshold rule can be changed")},
		{store.ErrPredictionExists, rest.BadRequest("Prediction already exists")},
		{store.ErrNoAnomaly, rest.BadRequest("Excursion is not an anomaly")},
		{store.ErrPredictionUsed, rest.BadRequest("Prediction already used in training")},
		{store.ErrNoSensors, rest.BadRequest("No sensors to learn from")},
		{store.ErrRunning, rest.Conflict("A training run is already running")},
	}
	return func(err error) (*rest.Error, bool) {
		if soon, ok := errors.AsType[*learning.TooSoonError](err); ok {
			return rest.TooManyRequests("Only one training run in 10 minutes can be started by hand", soon.Wait), true
		}
		if limit, ok := errors.AsType[*readings.LimitError](err); ok {
			return limitAnswer(limit.Purpose), true
		}
		if missing, ok := errors.AsType[store.NotFoundError](err); ok {
			text := missing.Error()
			return rest.NotFound(strings.ToUpper(text[:1]) + text[1:]), true
		}
		for _, known := range table {
			if errors.Is(err, known.err) {
				return known.answer, true
			}
		}
		return nil, false
	}
}

// limitAnswer is the answer to a query that would scan more than its purpose allows.
func limitAnswer(purpose readings.Purpose) *rest.Error {
	if purpose == readings.Chart {
		return rest.BadRequest("The range holds more readings than one chart may scan; ask for a shorter one")
	}
	return rest.BadRequest("The range holds more readings than one request may scan; ask for a shorter one, several times")
}
