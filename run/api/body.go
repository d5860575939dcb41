package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

const (
	// maxBody is the largest request body, in bytes.
	maxBody = 1 << 20
	// bodyTime is how long a client may take to send one.
	bodyTime = 5 * time.Second
)

// receive reads a request's body before huma does, which answers 500 to one
// that is cut off or badly chunked. One that says it is over the limit is
// refused unread; where none is asked for, one that comes is not read at all.
func (a *api) receive(ctx huma.Context, next func(huma.Context)) {
	if ctx.Operation().RequestBody == nil {
		next(ctx)
		return
	}
	request, writer := unwrap(ctx)
	if request.ContentLength > maxBody {
		writeProblem(writer, http.StatusRequestEntityTooLarge, detailBodyTooLarge)
		return
	}
	// A test's recorder knows no deadlines; a socket's follow the real clock. At
	// the body's end net/http takes it away again.
	_ = ctx.SetReadDeadline(time.Now().Add(bodyTime)) //nolint:forbidigo // see above
	body, err := io.ReadAll(io.LimitReader(request.Body, maxBody+1))
	timeout, _ := errors.AsType[net.Error](err)
	switch {
	case len(body) > maxBody:
		writeProblem(writer, http.StatusRequestEntityTooLarge, detailBodyTooLarge)
	case timeout != nil && timeout.Timeout():
		writeProblem(writer, http.StatusRequestTimeout, detailBodyTimeout)
	case err != nil:
		writeProblem(writer, http.StatusBadRequest, detailBodyMalformed)
	default:
		if name := a.unknownAlone(ctx.Operation(), body); name != "" {
			writeProblem(writer, http.StatusBadRequest, name+": unknown field")
			return
		}
		next(withBody{ctx, body})
	}
}

type withBody struct {
	inner

	body []byte
}

// Unwrap gives huma's adapter its own context back.
func (c withBody) Unwrap() huma.Context { return c.inner }

// BodyReader implements [huma.Context].
func (c withBody) BodyReader() io.Reader { return bytes.NewReader(c.body) }

// unknownAlone returns a field that a change does not have, where the body names
// no other: a misspelt field must not pass for a change that succeeded.
func (a *api) unknownAlone(op *huma.Operation, body []byte) string {
	if op.Method != http.MethodPatch && op.Method != http.MethodPut {
		return ""
	}
	var given map[string]json.RawMessage
	if json.Unmarshal(body, &given) != nil || len(given) == 0 {
		return "" // for huma to judge
	}
	known := a.bodyFields(op)
	first := ""
	for name := range given {
		if slices.ContainsFunc(known, func(field string) bool { return strings.EqualFold(field, name) }) {
			return ""
		}
		if first == "" || name < first {
			first = name
		}
	}
	return shortened(first)
}

// shortened cuts what a caller made up, for an answer to repeat it.
func shortened(name string) string {
	const most = 80
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}

// bodyFields are the fields of an operation's body, in the order in which its
// type declares them.
func (a *api) bodyFields(op *huma.Operation) []string {
	if op.RequestBody == nil {
		return nil
	}
	body := a.huma.OpenAPI().Components.Schemas.TypeFromRef(op.RequestBody.Content["application/json"].Schema.Ref)
	var names []string
	for field := range body.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}
