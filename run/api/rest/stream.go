package rest

import (
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
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

// RowEncoder writes one kind of item as JSON or as CSV.
type RowEncoder[T any] struct {
	ContentType         string
	Begin, Between, End string
	Append              func(b []byte, item T) []byte
}

// StreamRows streams items. It writes nothing before the first item is read, so
// that a failure until then is still answered with 500.
func StreamRows[T any](r *API, hc huma.Context, form RowEncoder[T], items iter.Seq2[T, error]) {
	request, writer := humago.Unwrap(hc)
	s := newStream(writer)
	header := writer.Header()
	header.Set("Content-Type", form.ContentType)
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
			s.buffer = append(s.buffer, form.Between...)
		}
		count++
		s.buffer = form.Append(s.buffer, item)
		if s.flushWhenFull() != nil {
			return // the client has gone
		}
	}
	s.buffer = append(s.buffer, form.End...)
	_ = s.flush() // the client may have gone
}

// failStream ends an answer that cannot be completed. If part of it is sent, the
// connection is cut, so that the client does not take that part for the whole
// (contract 5.5).
func (r *API) failStream(ctx context.Context, s *stream, err error) {
	answered, _ := r.errorOf(r.answer(ctx, err))
	if s.headerWritten {
		panic(http.ErrAbortHandler)
	}
	header := s.w.Header()
	header.Del("Content-Disposition")
	WriteError(s.w, answered)
}
