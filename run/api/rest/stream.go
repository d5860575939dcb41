package rest

import (
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/negotiation"
)

// streamBuffer is how much of an answer is gathered before it is written: a
// few hundred readings.
const streamBuffer = 32 << 10

// WriteTimeout is how long a client may take to receive an answer. A stream renews
// it with each flush.
const WriteTimeout = 60 * time.Second

// stream writes an answer of any length with constant memory. Each flush sets a
// new write deadline of WriteTimeout: a slow client may take long, a stuck one is
// cut.
type stream struct {
	w             http.ResponseWriter
	control       *http.ResponseController
	buffer        []byte
	headerWritten bool
}

func newStream(w http.ResponseWriter) *stream {
	return &stream{w: w, control: http.NewResponseController(w), buffer: make([]byte, 0, streamBuffer+1<<10)}
}

// flushWhenFull flushes once streamBuffer bytes are gathered.
func (s *stream) flushWhenFull() error {
	if len(s.buffer) < streamBuffer {
		return nil
	}
	return s.flush()
}

func (s *stream) flush() error {
	if len(s.buffer) == 0 {
		return nil
	}
	// A test's recorder knows no deadlines; a socket's follow the real clock.
	_ = s.control.SetWriteDeadline(time.Now().Add(WriteTimeout)) //nolint:forbidigo // see above
	s.headerWritten = true
	_, err := s.w.Write(s.buffer)
	s.buffer = s.buffer[:0]
	return err //nolint:wrapcheck // only told from nil
}

// The types of streams.
const (
	ContentJSON = "application/json"
	ContentCSV  = "text/csv"
)

// WantsCSV reports whether a caller asked for CSV: by format, which comes before the
// Accept header.
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

// EncodedRows is [JSONRows] of what items are converted to.
func EncodedRows[A, B any](convert func(A) B) RowEncoder[A] {
	return JSONRows(func(b []byte, item A) []byte {
		encoded, err := Encode(convert(item))
		if err != nil {
			panic(err) // stored values have a form in JSON
		}
		return append(b, encoded...)
	})
}

// Stream answers with items. They are read by a context that outlives the handler's.
func Stream[T any](r *API, form RowEncoder[T], items func(context.Context) iter.Seq2[T, error]) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hc huma.Context) { streamRows(r, hc, form, items(hc.Context())) }}
}

// streamRows writes nothing before the first item is read, so that a failure until then
// is still answered with 500.
func streamRows[T any](r *API, hc huma.Context, form RowEncoder[T], items iter.Seq2[T, error]) {
	request, writer := humago.Unwrap(hc)
	s := newStream(writer)
	header := writer.Header()
	header.Set("Content-Type", form.contentType)
	header.Add("Vary", "Accept")
	if request.Method == http.MethodHead {
		return // without a body there is nothing to read
	}
	s.buffer = append(s.buffer, form.Begin...)
	count := 0
	for item, err := range items {
		if err != nil {
			r.failStream(request.Context(), s, err)
			return
		}
		if count > 0 {
			s.buffer = append(s.buffer, form.between...)
		}
		count++
		s.buffer = form.Append(s.buffer, item)
		if s.flushWhenFull() != nil {
			return // the client has gone
		}
	}
	s.buffer = append(s.buffer, form.end...)
	_ = s.flush() // the client may have gone
}

// failStream ends an answer that cannot be completed. If part of it is sent, the
// connection is cut, so that the client does not take that part for the whole
// (contract 5.2).
func (r *API) failStream(ctx context.Context, s *stream, err error) {
	answered, _ := r.errorOf(r.answer(ctx, err))
	if s.headerWritten {
		panic(http.ErrAbortHandler)
	}
	header := s.w.Header()
	header.Del("Content-Disposition")
	WriteError(s.w, answered)
}
