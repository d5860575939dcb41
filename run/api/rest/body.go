package rest

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

const (
	// maxBody is the largest request body, in bytes (contract 1.7).
	maxBody = 1 << 20
	// bodyTimeout is how long a client may take to send a body.
	bodyTimeout = 5 * time.Second
)

// receiveBody reads a request's body before huma does, which would answer 500 to a body
// that is cut off or badly chunked. A body with a length over the limit is refused unread;
// for an operation without a body none is read.
func (r *API) receiveBody(ctx huma.Context, next func(huma.Context)) {
	if ctx.Operation().RequestBody == nil {
		next(humaContext{ctx, nil})
		return
	}
	request, writer := humago.Unwrap(ctx)
	if request.ContentLength > maxBody {
		WriteError(writer, NewError(http.StatusRequestEntityTooLarge, detailBodyTooLarge))
		return
	}
	// httptest's recorder has no deadlines; a socket's follow the real clock. net/http
	// clears it at the end of the body.
	_ = ctx.SetReadDeadline(time.Now().Add(bodyTimeout)) //nolint:forbidigo // see above
	body, err := io.ReadAll(io.LimitReader(request.Body, maxBody+1))
	timeout, _ := errors.AsType[net.Error](err)
	switch {
	case len(body) > maxBody:
		WriteError(writer, NewError(http.StatusRequestEntityTooLarge, detailBodyTooLarge))
	case timeout != nil && timeout.Timeout():
		WriteError(writer, NewError(http.StatusRequestTimeout, detailBodyTimeout))
	case err != nil:
		WriteError(writer, NewError(http.StatusBadRequest, detailBodyMalformed))
	default:
		if name := r.onlyUnknownField(ctx.Operation(), body); name != "" {
			WriteError(writer, NewError(http.StatusBadRequest, name+": unknown field"))
			return
		}
		repeatable, refused := r.repeatable(ctx, body)
		if refused != nil {
			WriteError(writer, refused)
			return
		}
		next(humaContext{repeatable, body})
	}
}

// onlyUnknownField returns an unknown field when the body has no known one. A change
// whose field is misspelt must fail (contract 1.4).
func (r *API) onlyUnknownField(op *huma.Operation, body []byte) string {
	if op.Method != http.MethodPatch && op.Method != http.MethodPut {
		return ""
	}
	var given map[string]json.RawMessage
	if json.Unmarshal(body, &given) != nil || len(given) == 0 {
		return "" // huma reports it
	}
	for _, field := range r.bodyFields(op) {
		for name := range given {
			if strings.EqualFold(field, name) {
				return ""
			}
		}
	}
	return shortened(slices.Min(slices.Collect(maps.Keys(given))))
}

// shortened truncates a caller's text so that an answer can quote it.
func shortened(name string) string {
	const most = 80
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}

// bodyFields are the fields of an operation's body, in the order in which its
// type declares them.
func (r *API) bodyFields(op *huma.Operation) []string {
	if op.RequestBody == nil {
		return nil
	}
	body := r.Schemas().TypeFromRef(op.RequestBody.Content["application/json"].Schema.Ref)
	var names []string
	for _, field := range reflect.VisibleFields(body) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}
