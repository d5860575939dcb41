// Package store is the metadata of Coldaisle in PostgreSQL: the schema, the rights of each
// component, and one pool of connections. Its subpackages have the statements, by who needs them:
//
//   - accounts: customers, keys, rooms, sensors, gateways, the audit log; for the API
//   - incidents: rules, alerts, incidents, maintenance windows, silences; for the API, detect
//     and storealert
//   - learning: predictions, verdicts, training runs, learned properties of nodes; for the API,
//     detect and train
//   - pipeline: the status of a sensor and the state of a node; for ingest and detect
//   - records: the past of a room for its monthly record; for the API
//
// Each has a Store over a [DB]. A file holds one subject, with its SQL beside the Go that
// runs it. The columns of a table that a query returns are one constant, qualified so that
// it also serves in a join. Every query about something a customer owns names that customer;
// what belongs to another customer is reported as absent. The schema (folder migrations)
// enforces the rules of the data, so that no writer can break them.
package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// NotFoundError says what was not found. Each is an [ErrNotFound].
type NotFoundError string

func (e NotFoundError) Error() string { return string(e) + " not found" }

// Is makes each an [ErrNotFound] to [errors.Is].
func (e NotFoundError) Is(target error) bool { return target == ErrNotFound }

// Errors that callers distinguish. Every ErrNo… is an [ErrNotFound].
var (
	ErrNotFound = errors.New("not found")

	ErrNoCustomer    = NotFoundError("customer")
	ErrNoRoom        = NotFoundError("room")
	ErrNoSensor      = NotFoundError("sensor")
	ErrNoAlert       = NotFoundError("alert")
	ErrNoPrediction  = NotFoundError("prediction")
	ErrNoRun         = NotFoundError("training run")
	ErrNoGateway     = NotFoundError("gateway")
	ErrNoRule        = NotFoundError("rule")
	ErrNoExcursion   = NotFoundError("excursion")
	ErrNoIncident    = NotFoundError("incident")
	ErrNoDrill       = NotFoundError("drill")
	ErrNoMaintenance = NotFoundError("maintenance window")
	ErrNoPerson      = NotFoundError("person")
	ErrNoInvitation  = NotFoundError("invitation")
	ErrNoAPIKey      = NotFoundError("API key")
	ErrNoWatch       = NotFoundError("watch")
	ErrNoCorrection  = NotFoundError("correction")

	ErrEmailTaken         = errors.New("email already registered")
	ErrUsernameTaken      = errors.New("username already taken")
	ErrSensorExists       = errors.New("sensor already exists")
	ErrTooManyGateways    = errors.New("too many gateways")                  // or codes that wait
	ErrTooManyUnreported  = errors.New("too many sensors without a reading") // and no enrolled gateway
	ErrPredictionExists   = errors.New("prediction already exists")
	ErrNoAnomaly          = errors.New("not an anomaly") // so there is no prediction to judge
	ErrPredictionUsed     = errors.New("prediction already used in training")
	ErrNoSensors          = errors.New("the customer has no sensors")
	ErrRunning            = errors.New("a training run is under way")
	ErrRunEnded           = errors.New("the training run has ended")
	ErrRunClaimed         = errors.New("the training run is another trainer's")
	ErrGatewayEnrolled    = errors.New("the code has enrolled another gateway")
	ErrLastOwner          = errors.New("the last owner") // of the account
	ErrTooManyPersons     = errors.New("too many persons")
	ErrTooManyAPIKeys     = errors.New("too many API keys")
	ErrTooManyWatches     = errors.New("too many watches")
	ErrTooManyAnswers     = errors.New("too many idempotency keys")
	ErrCorrectionSoon     = errors.New("the correction begins too soon") // to be added, or to be withdrawn
	ErrCorrectionExists   = errors.New("correction already exists")      // from the same time
	ErrTooManyCorrections = errors.New("too many corrections")
	ErrStatusReplayed     = errors.New("this status of the gateway was received before")
)

// Wrap adds the operation and its subject to an error; nil stays nil. A change that the schema refuses
// fails with the error of the rule that it breaks.
func Wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), refused(err))
}

// refused returns the error of the rule that a change breaks, by the constraint or unique index that has it.
func refused(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch pgErr.ConstraintName {
	case "customers_email_key", "persons_email_key":
		return ErrEmailTaken
	case "customers_username_key":
		return ErrUsernameTaken
	case "open_holds_holder_key", "sensors_customer_node_key":
		return ErrSensorExists
	case "sensors_room_fkey", "rules_room_fkey": // it was deleted meanwhile, or is another customer's
		return ErrNoRoom
	case "rules_sensor_fkey":
		return ErrNoSensor
	case "rules_customer_id_fkey":
		return ErrNoCustomer
	case "corrections_ahead", "corrections_withdrawable":
		return ErrCorrectionSoon
	case "corrections_from_key":
		return ErrCorrectionExists
	case "prediction_feedback_reading_key":
		return ErrPredictionExists
	default:
		return err
	}
}

// CodeHash is the stored form of a code. A code has 100 random bits or more, so that a fast
// hash protects it. People type codes: case, dashes and spaces do not matter.
func CodeHash(code string) []byte {
	sum := sha256.Sum256([]byte(strings.ToUpper(strings.NewReplacer("-", "", " ", "").Replace(code))))
	return sum[:]
}
