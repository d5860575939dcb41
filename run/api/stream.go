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

// stream writes rows of an answer of any length with flat memory. Its writer is
// given writeTime anew for every buffer it takes: a slow client may take long,
// a stuck one is cut.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buffer  []byte
	begun   bool
}

func newStream(w http.ResponseWriter) *stream {
	return &stream{w: w, control: http.NewResponseController(w), buffer: make([]byte, 0, streamBuffer+1<<10)}
}

// written passes on what is gathered once it is enough.
func (s *stream) written() error {
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
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTime)) //nolint:forbidigo // see above
	s.begun = true
	_, err := s.w.Write(s.buffer)
	s.buffer = s.buffer[:0]
	return err //nolint:wrapcheck // only told from nil
}

// abandon ends an answer that cannot be completed. One that has begun is cut,
// so that the client does not take a part of the readings for all of them.
func (a *api) abandon(ctx context.Context, s *stream, err error) {
	f, _ := faultOf(a.answer(ctx, err))
	if s.begun {
		panic(http.ErrAbortHandler)
	}
	header := s.w.Header()
	header.Del("Content-Disposition")
	writeProblem(s.w, f.status, f.detail)
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
