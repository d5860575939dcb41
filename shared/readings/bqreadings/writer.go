package bqreadings

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"cloud.google.com/go/bigquery/storage/managedwriter"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/readings"
)

const (
	// attempts is how often one append is tried here. After that Pub/Sub
	// redelivers the message, more slowly.
	attempts     = 3
	firstBackoff = 20 * time.Millisecond
)

// writer appends rows to the table's default stream over one long connection. The first
// append opens the connection, which belongs to no request. A failed one is replaced, and
// its unacknowledged rows are sent again: the default stream is at least once, and readers
// deduplicate.
type writer struct {
	project string
	table   string        // projects/P/datasets/D/tables/T
	timeout time.Duration // of one attempt
	options []option.ClientOption
	log     *slog.Logger

	ctx    context.Context // ends with the store; connections live on it
	cancel context.CancelFunc

	current *coalesce.Once[connection]
	closing sync.WaitGroup
}

// connection is one managed stream with a client of its own. While BigQuery is
// unreachable, the library's Close waits for its attempts to reconnect; only
// canceling the client's context ends them, and each client has its own context.
type connection struct {
	client *managedwriter.Client
	stream *managedwriter.ManagedStream
	cancel context.CancelFunc
	refs   sync.WaitGroup // appends in flight
}

func newWriter(ctx context.Context, project, table string, timeout time.Duration, options []option.ClientOption, log *slog.Logger) *writer {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &writer{project: project, table: table, timeout: timeout, options: options, log: log, ctx: ctx, cancel: cancel}
	w.current = coalesce.NewOnce(w.open, func(c *connection) { c.refs.Add(1) })
	return w
}

// append sends rows as one request and returns an error per row. If BigQuery refuses some
// rows it stores none of the request; the others are then sent again without them.
func (w *writer) append(rows [][]byte) []error {
	ctx, cancel := context.WithTimeout(w.ctx, attempts*w.timeout)
	defer cancel()
	errs := make([]error, len(rows))
	refused, err := w.retry(ctx, rows)
	if err == nil {
		return errs
	}
	kept := make([][]byte, 0, len(rows))
	positions := make([]int, 0, len(rows))
	for i, row := range rows {
		if rowError, ok := refused[int64(i)]; ok {
			errs[i] = fmt.Errorf("%w: %s", readings.ErrRowRefused, rowError)
			continue
		}
		kept, positions = append(kept, row), append(positions, i)
	}
	if len(refused) == 0 || len(kept) == 0 {
		for i := range errs {
			if errs[i] == nil {
				errs[i] = err
			}
		}
		return errs
	}
	if _, err := w.retry(ctx, kept); err != nil {
		for _, i := range positions {
			errs[i] = err
		}
	}
	return errs
}

// retry sends rows until BigQuery has stored or refused them, or the attempts are used up.
func (w *writer) retry(ctx context.Context, rows [][]byte) (refused map[int64]string, err error) {
	backoff := firstBackoff
	for attempt := 1; ; attempt++ {
		refused, err = w.attempt(ctx, rows)
		if err == nil || len(refused) > 0 || !transient(err) || attempt == attempts || ctx.Err() != nil {
			break
		}
		w.log.WarnContext(ctx, "append failed, retrying", "attempt", attempt, "rows", len(rows), "error", err.Error())
		_ = pause.For(ctx, backoff)
		backoff *= 2
	}
	if err != nil {
		return refused, fmt.Errorf("append %d rows: %w", len(rows), err)
	}
	return nil, nil
}

// attempt sends rows once. It drops the connection unless the answer came from
// BigQuery itself.
func (w *writer) attempt(ctx context.Context, rows [][]byte) (map[int64]string, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	c, err := w.current.Get(ctx)
	if err != nil {
		return nil, err
	}
	defer c.refs.Done()
	result, err := c.stream.AppendRows(ctx, rows)
	if err != nil {
		w.retire(c)
		return nil, fmt.Errorf("send: %w", err)
	}
	response, err := result.FullResponse(ctx)
	if err == nil {
		return nil, nil
	}
	if response == nil || !transient(err) && len(response.GetRowErrors()) == 0 {
		// No answer, a broken connection, or a stream that no longer fits the table,
		// for instance because the table was created anew.
		w.retire(c)
	}
	refused := make(map[int64]string, len(response.GetRowErrors()))
	for _, rowError := range response.GetRowErrors() {
		refused[rowError.GetIndex()] = rowError.GetMessage()
	}
	return refused, fmt.Errorf("acknowledge: %w", err)
}

// transient reports whether sending the same rows again at once can help.
func transient(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	s, ok := status.FromError(err)
	if !ok {
		return true // the end of a connection, in one of its many forms
	}
	switch s.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, codes.OutOfRange:
		return false
	default:
		return true
	}
}

// open opens a connection that outlives ctx; ctx bounds only the opening.
func (w *writer) open(ctx context.Context) (*connection, error) {
	alive, cancel := context.WithCancel(w.ctx)
	stop := context.AfterFunc(ctx, cancel)
	options := append([]option.ClientOption{option.WithGRPCConnectionPool(1)}, w.options...) // one stream needs no more
	client, err := managedwriter.NewClient(alive, w.project, options...)                     //nolint:contextcheck // it outlives ctx
	if err != nil {
		cancel()
		return nil, fmt.Errorf("open write client: %w", err)
	}
	stream, err := client.NewManagedStream(alive, //nolint:contextcheck // it outlives ctx
		managedwriter.WithDestinationTable(w.table),
		managedwriter.WithType(managedwriter.DefaultStream),
		managedwriter.WithSchemaDescriptor(rowDescriptor()),
		managedwriter.WithTraceID("coldaisle"),
	)
	if err != nil {
		cancel()
		_ = client.Close()
		return nil, fmt.Errorf("open write stream: %w", err)
	}
	if !stop() {
		cancel()
		_ = client.Close()
		return nil, fmt.Errorf("open write stream: %w", ctx.Err())
	}
	return &connection{client: client, stream: stream, cancel: cancel}, nil
}

// retire retires a connection: the next append opens another, and this one is
// closed when the appends that still use it have ended.
func (w *writer) retire(c *connection) {
	if w.current.Remove(c) {
		w.closing.Go(c.close)
	}
}

func (c *connection) close() {
	c.refs.Wait()
	c.cancel()
	_ = c.stream.Close() // returns the end of its context
	_ = c.client.Close()
}

// close ends the connection; call it after the last append.
func (w *writer) close() {
	if c := w.current.Take(); c != nil {
		c.close()
	}
	w.closing.Wait()
	w.cancel()
}
