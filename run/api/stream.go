package api

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// streamBuffer is how much of an answer is gathered before it is written: a
// few hundred readings.
const streamBuffer = 32 << 10

// stream writes an answer of any length with constant memory. Each flush sets a
// new write deadline of writeTimeout: a slow client may take long, a stuck one is
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
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout)) //nolint:forbidigo // see above
	s.headerWritten = true
	_, err := s.w.Write(s.buffer)
	s.buffer = s.buffer[:0]
	return err //nolint:wrapcheck // only told from nil
}

// failStream ends an answer that cannot be completed. If part of it is sent, the
// connection is cut, so that the client does not take that part for the whole.
func (r *rest) failStream(ctx context.Context, s *stream, err error) {
	answered, _ := errorOf(r.answer(ctx, err))
	if s.headerWritten {
		panic(http.ErrAbortHandler)
	}
	header := s.w.Header()
	header.Del("Content-Disposition")
	writeError(s.w, answered)
}

// appendNumber writes a measured value in its shortest form.
func appendNumber(b []byte, value float64) []byte { return strconv.AppendFloat(b, value, 'f', -1, 64) }

// appendTime writes a time as RFC 3339, UTC.
func appendTime(b []byte, t time.Time) []byte { return t.UTC().AppendFormat(b, time.RFC3339Nano) }

// appendCell writes a text cell of CSV. Identifiers hold no comma, quote or
// line end; one that begins with a minus would be a formula to a spreadsheet
// and gets an apostrophe before it.
func appendCell(b []byte, text string) []byte {
	if text != "" && text[0] == '-' {
		b = append(b, '\'')
	}
	return append(b, text...)
}
