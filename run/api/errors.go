package api

import (
	"context"
	"errors"
	"math"
	"net/http"
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
	detailBodyTimeout      = "Request body was not received in time"
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
// one detail that names each field and the rule it broke.
func problemOf(_ huma.Context, _ string, body any) (any, error) {
	model, ok := body.(*huma.ErrorModel)
	if !ok {
		return body, nil
	}
	switch model.Status {
	case http.StatusRequestEntityTooLarge:
		return problem{Detail: detailBodyTooLarge}, nil
	case http.StatusRequestTimeout:
		return problem{Detail: detailBodyTimeout}, nil
	}
	if model.Status >= http.StatusInternalServerError {
		return problem{Detail: detailInternal}, nil
	}
	return problem{Detail: validationDetail(model)}, nil
}

// validationDetail joins the faults of a request. A malformed e-mail is told
// alone, in exactly the words of the specification.
func validationDetail(model *huma.ErrorModel) string {
	if len(model.Errors) == 0 {
		return model.Detail
	}
	lines := make([]string, 0, len(model.Errors))
	for _, e := range model.Errors {
		if strings.HasPrefix(e.Message, malformedJSON) {
			return e.Message
		}
		if e.Message == detailEmailFormat || strings.HasPrefix(e.Message, "expected string to be RFC 5322 email") {
			return detailEmailFormat
		}
		line := e.Message
		if field := fieldOf(e.Location); field != "" {
			line = field + ": " + line
		}
		if len(lines) == 0 || lines[len(lines)-1] != line {
			lines = append(lines, line)
		}
		if len(lines) == maxValidationLines {
			break
		}
	}
	return strings.Join(lines, "; ")
}

// maxValidationLines bounds an answer to a request with a thousand faults.
const maxValidationLines = 10

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
