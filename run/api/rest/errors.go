package rest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"coldaisle.dev/run/api/input"
	"coldaisle.dev/shared/fairqueue"
)

// problem is the body of every error: {"detail": "..."}.
type problem struct {
	Detail string `json:"detail" doc:"What went wrong, for a person to read." example:"Room not found"`
}

// Error is an error answer: its status and the detail in its body. Any other error of a
// handler is answered with 500, and its cause is only logged.
type Error struct {
	Status     int
	Detail     string
	RetryAfter time.Duration // when to try again, if known
}

func (e *Error) Error() string { return e.Detail }

// GetStatus returns the status of the answer to huma.
func (e *Error) GetStatus() int { return e.Status }

// GetHeaders returns the headers of the answer to huma.
func (e *Error) GetHeaders() http.Header {
	switch {
	case e == ErrUnauthorized:
		return http.Header{"Www-Authenticate": {"Bearer"}}
	case e.RetryAfter > 0:
		return http.Header{"Retry-After": {strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds())))}}
	}
	return nil
}

// MarshalJSON writes the error's one field.
func (e *Error) MarshalJSON() ([]byte, error) {
	return Encode(problem{Detail: e.Detail})
}

// NewError returns an answer of that status.
func NewError(status int, detail string) *Error { return &Error{Status: status, Detail: detail} }

// TooManyRequests answers 429 and says when to try again.
func TooManyRequests(detail string, retryAfter time.Duration) *Error {
	return &Error{Status: http.StatusTooManyRequests, Detail: detail, RetryAfter: retryAfter}
}

// Busy answers 503 and says when to try again.
func Busy(detail string, retryAfter time.Duration) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Detail: detail, RetryAfter: retryAfter}
}

// BadRequest answers 400.
func BadRequest(detail string) *Error { return NewError(http.StatusBadRequest, detail) }

// Forbidden answers 403.
func Forbidden(detail string) *Error { return NewError(http.StatusForbidden, detail) }

// NotFound answers 404.
func NotFound(detail string) *Error { return NewError(http.StatusNotFound, detail) }

// Conflict answers 409.
func Conflict(detail string) *Error { return NewError(http.StatusConflict, detail) }

var (
	// ErrUnauthorized does not say what is wrong with the token or key.
	ErrUnauthorized = NewError(http.StatusUnauthorized, "Could not validate credentials")
	// errBusy answers a request that got no turn in time.
	errBusy = Busy("Too many requests at once; try again in a moment", maxTurnWait)
)

// StatusClientGone is for the log, where 500 would be a fault of ours; nobody reads the answer.
const StatusClientGone = 499

// The details of the errors that any operation may answer with.
const (
	detailBodyTooLarge  = "Request body is larger than 1 MiB"
	detailBodyMalformed = "Request body is malformed or was cut off"
	detailBodyTimeout   = "Request body was not received in time"
	DetailInternal      = "Internal server error"
)

// errorOf maps a handler's error to the answer. It returns false for an internal error,
// whose cause is only for the log.
func (r *API) errorOf(err error) (*Error, bool) {
	if answer, ok := errors.AsType[*Error](err); ok {
		return answer, true
	}
	if errors.Is(err, fairqueue.ErrNoSlot) {
		return errBusy, true
	}
	if answer, ok := r.config.MapError(err); ok {
		return answer, true
	}
	return NewError(http.StatusInternalServerError, DetailInternal), false
}

// answer maps a handler's error to the answer that huma writes, and logs the
// cause of an internal one.
func (r *API) answer(ctx context.Context, err error) *Error {
	answered, known := r.errorOf(err)
	if known {
		return answered
	}
	if ctx.Err() != nil {
		// The client has gone or the server is stopping: nobody reads the answer.
		r.config.Log.InfoContext(ctx, "request canceled", "error", err.Error())
		return NewError(StatusClientGone, answered.Detail)
	}
	r.config.Log.ErrorContext(ctx, "request failed", "error", err.Error())
	return answered
}

// transformError turns huma's own errors, mostly of validation, into ours: one detail that
// names the field and the rule that it breaks.
func (r *API) transformError(ctx huma.Context, _ string, body any) (any, error) {
	model, ok := body.(*huma.ErrorModel)
	if !ok {
		return body, nil
	}
	if model.Status >= http.StatusInternalServerError {
		return problem{Detail: DetailInternal}, nil
	}
	return problem{Detail: r.firstError(ctx.Operation(), model)}, nil
}

// firstError describes the first error of a request in a fixed order (contract 1.4): path,
// query and header as the operation declares them, then the fields of the body as its type
// declares them; for one field, the rule that huma checks first.
func (r *API) firstError(op *huma.Operation, model *huma.ErrorModel) string {
	if len(model.Errors) == 0 {
		return model.Detail
	}
	fields := r.bodyFields(op)
	position := func(e *huma.ErrorDetail) int {
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
		return slices.Index(fields, name) // -1 for the body as a whole, before all fields
	}
	first := slices.MinFunc(model.Errors, func(x, y *huma.ErrorDetail) int { return cmp.Compare(position(x), position(y)) })
	// The detail of an invalid e-mail address does not name the field (contract 2.2).
	if first.Message == input.InvalidEmail || strings.HasPrefix(first.Message, "expected string to be RFC 5322 email") {
		return input.InvalidEmail
	}
	if first.Location == "body" && (first.Message == "expected object" || first.Message == validation.MsgExpectedMatchAtLeastOneSchema) {
		return "request body: expected a JSON object"
	}
	if field := fieldOf(first.Location); field != "" {
		return field + ": " + first.Message
	}
	return first.Message
}

// missingPrefix is the prefix of huma's message about a missing required field.
const missingPrefix = "expected required property "

// fieldOf cuts huma's location ("body.name", "path.room_id", "query.limit") to the name
// that the caller uses.
func fieldOf(location string) string {
	part, field, found := strings.Cut(location, ".")
	switch {
	case found:
		return field
	case part == "body":
		return ""
	default:
		return part
	}
}

// WriteError writes an error answer outside huma, for unknown paths, panics and limits.
func WriteError(w http.ResponseWriter, e *Error) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Del("Content-Length")
	maps.Copy(w.Header(), e.GetHeaders())
	w.WriteHeader(e.Status)
	body, _ := e.MarshalJSON() // a text always has a JSON form
	_, _ = w.Write(body)
}
