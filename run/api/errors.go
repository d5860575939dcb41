package api

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/shared/store"
)

// problem is the body of every error: {"detail": "..."}.
type problem struct {
	Detail string `json:"detail" doc:"What went wrong, for a person to read." example:"Room not found"`
}

// fault is an error that a caller is told about: its status and its detail.
// Everything else that a handler returns becomes a 500 whose cause only the log
// knows.
type fault struct {
	status     int
	detail     string
	retryAfter time.Duration // when to try again, where that is known
}

func (f *fault) Error() string { return f.detail }

// GetStatus tells huma the status to answer with.
func (f *fault) GetStatus() int { return f.status }

// GetHeaders gives huma the headers to answer with.
func (f *fault) GetHeaders() http.Header {
	if f.retryAfter <= 0 {
		return nil
	}
	return http.Header{"Retry-After": {strconv.Itoa(int(math.Ceil(f.retryAfter.Seconds())))}}
}

// MarshalJSON writes the error's one field.
func (f *fault) MarshalJSON() ([]byte, error) {
	return encode(problem{Detail: f.detail})
}

func newFault(status int, detail string) *fault { return &fault{status: status, detail: detail} }

func tooMany(detail string, retryAfter time.Duration) *fault {
	return &fault{status: http.StatusTooManyRequests, detail: detail, retryAfter: retryAfter}
}

// busy is told to who did not get a turn to have a password checked.
func busy() *fault {
	return &fault{status: http.StatusServiceUnavailable, detail: detailBusy, retryAfter: turnTime}
}

func notFound(detail string) *fault   { return newFault(http.StatusNotFound, detail) }
func badRequest(detail string) *fault { return newFault(http.StatusBadRequest, detail) }

// The texts of the specification and of what it leaves open, word for word.
const (
	detailCredentials      = "Could not validate credentials"
	detailLogin            = "Incorrect email or password"
	detailEmailFormat      = "Invalid email format"
	detailEmailTaken       = "Email already registered"
	detailUsernameTaken    = "Username already taken"
	detailNoCustomer       = "Customer not found"
	detailNoRoom           = "Room not found"
	detailNoSensor         = "Sensor not found"
	detailSensorExists     = "Sensor already exists"
	detailNoReadings       = "No readings found"
	detailNoAlert          = "Alert not found"
	detailNoPrediction     = "Prediction not found"
	detailPredictionUsed   = "Prediction already used in training"
	detailPredictionExists = "Prediction already exists"
	detailNoTrainingRun    = "Training run not found"
	detailTrainingUnderWay = "A training run is already running"
	detailTrainingTooSoon  = "Only one training run in 10 minutes can be started by hand"
	detailNoSensors        = "No sensors to learn from"
	detailNoForecast       = "No forecast available"
	detailNotFound         = "Not Found"
	detailMethodNotAllowed = "Method Not Allowed"
	detailBodyTooLarge     = "Request body is larger than 1 MiB"
	detailBodyMalformed    = "Request body is malformed or was cut off"
	detailBodyTimeout      = "Request body was not received in time"
	detailBusy             = "Too many logins and registrations at once; try again in a moment"
	detailInternal         = "Internal server error"
)

// faultOf maps an error of a handler to what the caller is told; the second
// result is false for one that nobody but the log may know.
func faultOf(err error) (*fault, bool) {
	if f, ok := errors.AsType[*fault](err); ok {
		return f, true
	}
	if soon, ok := errors.AsType[*store.TooSoonError](err); ok {
		return tooMany(detailTrainingTooSoon, soon.Wait), true
	}
	for _, known := range storeFaults() {
		if errors.Is(err, known.err) {
			return known.fault, true
		}
	}
	return newFault(http.StatusInternalServerError, detailInternal), false
}

// answer turns an error of a handler into the fault that huma writes, and logs
// the cause of one that the caller must not see.
func (a *api) answer(ctx context.Context, err error) error {
	f, told := faultOf(err)
	if told {
		return f
	}
	if ctx.Err() != nil {
		// The client has gone or the server is stopping: nobody reads the answer.
		a.log.InfoContext(ctx, "request abandoned", "error", err.Error())
		return f
	}
	a.log.ErrorContext(ctx, "request failed", "error", err.Error())
	return f
}

// problemOf turns huma's own errors, those of validation above all, into ours:
// one detail that names the field and the rule it broke.
func (a *api) problemOf(ctx huma.Context, _ string, body any) (any, error) {
	model, ok := body.(*huma.ErrorModel)
	if !ok {
		return body, nil
	}
	if model.Status >= http.StatusInternalServerError {
		return problem{Detail: detailInternal}, nil
	}
	return problem{Detail: a.firstFault(ctx.Operation(), model)}, nil
}

// firstFault tells one fault of a request, by its place in a fixed order: path,
// query and header as the operation declares them, then the fields of the body
// as its type declares them, and of one field the rule that huma checks first.
func (a *api) firstFault(op *huma.Operation, model *huma.ErrorModel) string {
	if len(model.Errors) == 0 {
		return model.Detail
	}
	fields := a.bodyFields(op)
	place := func(e *huma.ErrorDetail) int {
		location, name, _ := strings.Cut(e.Location, ".")
		if location != "body" {
			return -1
		}
		if missing, ok := strings.CutPrefix(e.Message, missingPrefix); ok {
			name, _, _ = strings.Cut(missing, " ")
		}
		if end := strings.IndexAny(name, ".["); end >= 0 {
			name = name[:end]
		}
		return slices.Index(fields, name) // -1, before all others, of the body as a whole
	}
	first := slices.MinFunc(model.Errors, func(x, y *huma.ErrorDetail) int { return cmp.Compare(place(x), place(y)) })
	// A malformed e-mail is told in exactly the words of the specification.
	if first.Message == detailEmailFormat || strings.HasPrefix(first.Message, "expected string to be RFC 5322 email") {
		return detailEmailFormat
	}
	if field := fieldOf(first.Location); field != "" {
		return field + ": " + first.Message
	}
	return first.Message
}

// missingPrefix begins huma's message of a field that is absent and required.
const missingPrefix = "expected required property "

// fieldOf cuts huma's location ("body.name", "path.room_id", "query.limit") to
// the name that the caller wrote.
func fieldOf(location string) string {
	place, field, found := strings.Cut(location, ".")
	switch {
	case found:
		return field
	case place == "body":
		return ""
	default:
		return place
	}
}

// writeProblem answers outside huma: unknown paths, panics, limits.
func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Del("Content-Length")
	w.WriteHeader(status)
	_, _ = w.Write(problemBody(detail))
}

// problemBody is the body of an error.
func problemBody(detail string) []byte {
	body, err := encode(problem{Detail: detail})
	if err != nil { // a string always has a JSON form
		return []byte(`{"detail":"` + detailInternal + `"}`)
	}
	return body
}
