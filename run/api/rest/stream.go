package rest

import (
	"bufio"
	"context"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/negotiation"

	"coldaisle.dev/shared/reading"
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

// AppendText writes a text as a cell of CSV (RFC 4180), and makes it safe if a spreadsheet would take
// it for a formula (contract 5.4), by East Asian settings one with a wide sign too.
func AppendText(b []byte, text string) []byte {
	if first, _ := utf8.DecodeRuneInString(text); strings.ContainsRune("=+-@\t\r\n＝＋－＠", first) { // of an empty text none of these
		text = "'" + text
	}
	if strings.ContainsAny(text, ",\"\r\n") || strings.HasPrefix(text, " ") {
		text = `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
	}
	return append(b, text...)
}

// AppendLine writes a line of texts.
func AppendLine(b []byte, texts ...string) []byte {
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendText(b, text)
	}
	return append(b, '\n')
}

// AppendNumber writes a value in its shortest form, or none if it is missing.
func AppendNumber(b []byte, value float64, none string) []byte {
	if !reading.Has(value) {
		return append(b, none...)
	}
	return strconv.AppendFloat(b, value, 'f', -1, 64)
}

// AppendCells writes further cells of a line of CSV, empty where a value is missing.
func AppendCells(b []byte, values ...float64) []byte {
	for _, value := range values {
		b = AppendNumber(append(b, ','), value, "")
	}
	return b
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
	header := http.Header{"Content-Type": {form.contentType}, "Vary": {"Accept"}}
	return r.stream(header, func(ctx huma.Context, s *bufio.Writer) error {
		_, _ = s.WriteString(form.Begin) // its error is the next one's
		between := ""
		for item, err := range items(ctx.Context()) {
			if err != nil {
				return err
			}
			_, _ = s.WriteString(between)
			between = form.between
			if _, err := s.Write(form.Append(s.AvailableBuffer(), item)); err != nil {
				return nil //nolint:nilerr // the client has gone
			}
		}
		_, _ = s.WriteString(form.end)
		_ = s.Flush() // the client may have gone
		return nil
	})
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
// handler's.
func File(r *API, contentType, name string, write func(ctx context.Context, w io.Writer) error) *huma.StreamResponse {
	header := http.Header{"Content-Type": {contentType}, "Content-Disposition": {`attachment; filename="` + name + `"`}}
	return r.stream(header, func(ctx huma.Context, s *bufio.Writer) error {
		request, _ := humago.Unwrap(ctx) // its context is without the rooms of a key: a file is the same for all
		if err := write(request.Context(), s); err != nil {
			return err
		}
		return s.Flush() //nolint:wrapcheck // of the connection
	})
}

// stream answers with what write writes. It sends nothing before the buffer is full, so that a failure until
// then gets an error answer. A later one cuts the connection, so that the client does not mistake the part
// that it has for the whole (contract 5.2).
func (r *API) stream(header http.Header, write func(huma.Context, *bufio.Writer) error) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		request, writer := humago.Unwrap(hc)
		for name, values := range header {
			writer.Header()[name] = append(writer.Header()[name], values...)
		}
		if request.Method == http.MethodHead {
			return // without a body there is nothing to read
		}
		parts := &streamWriter{ResponseWriter: writer}
		err := write(hc, bufio.NewWriterSize(parts, streamBuffer))
		if err == nil {
			return
		}
		answered := r.answer(request.Context(), err)
		if parts.begun {
			panic(http.ErrAbortHandler)
		}
		writer.Header().Del("Content-Disposition")
		WriteError(parts, answered)
	}}
}
