package rest

import (
	"bufio"
	"context"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/negotiation"
)

// streamBuffer is how many bytes of an answer are buffered before they are written: a few
// hundred readings.
const streamBuffer = 32 << 10

// WriteTimeout is how long a client may take to receive an answer. A stream renews
// it with each flush.
const WriteTimeout = 60 * time.Second

// streamWriter sets a new write deadline with each part, so that a slow client may take long
// and a stuck one is cut.
type streamWriter struct {
	http.ResponseWriter

	begun bool
}

func (w *streamWriter) Write(part []byte) (int, error) {
	// httptest's recorder has no deadlines; a socket's follow the real clock.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(WriteTimeout)) //nolint:forbidigo // see above
	w.begun = true
	return w.ResponseWriter.Write(part) //nolint:wrapcheck // a writer passes its base's errors on
}

// The types of streams.
const (
	ContentJSON = "application/json"
	ContentCSV  = "text/csv"
)

// WantsCSV reports whether a caller asked for CSV, by format or else by the Accept header.
func WantsCSV(format, accept string) bool {
	if format != "" {
		return format == "csv"
	}
	return negotiation.SelectQValueFast(accept, []string{ContentJSON, ContentCSV}) == ContentCSV
}

// RowEncoder writes one kind of item as JSON or as CSV.
type RowEncoder[T any] struct {
	contentType         string
	Begin, between, end string
	Append              func(b []byte, item T) []byte
}

// CSVRows writes a header line, then the line of each item.
func CSVRows[T any](header string, appendLine func(b []byte, item T) []byte) RowEncoder[T] {
	return RowEncoder[T]{contentType: ContentCSV + "; charset=utf-8", Begin: header, Append: appendLine}
}

// JSONRows writes a list of objects.
func JSONRows[T any](appendObject func(b []byte, item T) []byte) RowEncoder[T] {
	return RowEncoder[T]{contentType: ContentJSON, Begin: "[", between: ",", end: "]\n", Append: appendObject}
}

// CSVText makes a text safe for a cell of CSV that a spreadsheet would take for a formula
// (contract 5.4).
func CSVText(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// EncodedRows is [JSONRows] of converted items.
func EncodedRows[A, B any](convert func(A) B) RowEncoder[A] {
	return JSONRows(func(b []byte, item A) []byte {
		encoded, err := Encode(convert(item))
		if err != nil {
			panic(err) // stored values can be encoded
		}
		return append(b, encoded...)
	})
}

// Stream answers with items, read under the request's context, which outlives the handler's.
func Stream[T any](r *API, form RowEncoder[T], items func(context.Context) iter.Seq2[T, error]) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hc huma.Context) { streamRows(r, hc, form, items(hc.Context())) }}
}

// Items yields a list that is in memory, for a stream.
func Items[T any](list []T) func(context.Context) iter.Seq2[T, error] {
	return func(context.Context) iter.Seq2[T, error] {
		return func(yield func(T, error) bool) {
			for _, item := range list {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// File answers with a file that write writes, under the request's context, which outlives the
// handler's. A failure before its first byte gets an error answer, a later one cuts the
// connection.
func File(r *API, contentType, name string, write func(ctx context.Context, w io.Writer) error) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		request, writer := humago.Unwrap(hc)
		header := writer.Header()
		header.Set("Content-Type", contentType)
		header.Set("Content-Disposition", `attachment; filename="`+name+`"`)
		if request.Method == http.MethodHead {
			return
		}
		parts := &streamWriter{ResponseWriter: writer}
		s := bufio.NewWriterSize(parts, streamBuffer)
		err := write(request.Context(), s)
		if err == nil {
			err = s.Flush()
		}
		if err != nil {
			header.Del("Content-Disposition")
			r.failStream(request.Context(), parts, err)
		}
	}}
}

// streamRows writes nothing before the first item is read, so that a failure until then
// is still answered with 500.
func streamRows[T any](r *API, hc huma.Context, form RowEncoder[T], items iter.Seq2[T, error]) {
	request, writer := humago.Unwrap(hc)
	parts := &streamWriter{ResponseWriter: writer}
	s := bufio.NewWriterSize(parts, streamBuffer)
	header := writer.Header()
	header.Set("Content-Type", form.contentType)
	header.Add("Vary", "Accept")
	if request.Method == http.MethodHead {
		return // without a body there is nothing to read
	}
	_, _ = s.WriteString(form.Begin) // its error is the next one's
	count := 0
	for item, err := range items {
		if err != nil {
			r.failStream(request.Context(), parts, err)
			return
		}
		if count > 0 {
			_, _ = s.WriteString(form.between)
		}
		count++
		if _, err := s.Write(form.Append(s.AvailableBuffer(), item)); err != nil {
			return // the client has gone
		}
	}
	_, _ = s.WriteString(form.end)
	_ = s.Flush() // the client may have gone
}

// failStream ends an answer that cannot be completed. If part of it has been sent, the
// connection is cut, so that the client does not mistake that part for the whole (contract
// 5.2).
func (r *API) failStream(ctx context.Context, w *streamWriter, err error) {
	answered, _ := r.errorOf(r.answer(ctx, err))
	if w.begun {
		panic(http.ErrAbortHandler)
	}
	WriteError(w, answered)
}
