package store

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"time"
)

// Position is the place of a row in a list ordered newest first, by time and then by id.
// Neither changes, so rows that arrive between two pages move none that was read.
type Position struct {
	Time time.Time `json:"time"`
	ID   int64     `json:"id"`
}

// PageRequest says which rows of a list to read.
type PageRequest struct {
	After *Position // those after this one; nil is the beginning
	Limit int       // how many at most
}

// Behind is the condition that a row comes after @after_time and @after_id in a list.
func Behind(timeColumn, idColumn string) string {
	return `(` + timeColumn + `, ` + idColumn + `) < (COALESCE(@after_time::timestamptz, 'infinity'), @after_id::bigint)`
}

// List is a list ordered newest first and read in pages by keyset, so that a late page costs no
// more than the first.
type List[T any] struct {
	DB      *DB
	Subject string // for errors
	Columns string
	From    string // FROM … WHERE …, all rows of the list
	Time    string // the column by which it is ordered, and then by ID
	ID      string
	// Rows replaces the statement that lists, where the planner needs another. It has [Behind], the order and @limit.
	Rows string
	Args Args
	At   func(T) Position
}

// Page is a part of a list.
type Page[T any] struct {
	Items []T
	Total int64     // of the whole list
	Next  *Position // where the next page begins; nil at the end
}

// Page reads a part and counts the whole.
func (l List[T]) Page(ctx context.Context, part PageRequest) (Page[T], error) {
	found, err := l.read(ctx, part.After, part.Limit+1)
	if err != nil {
		return Page[T]{}, err
	}
	page := Page[T]{Items: found, Total: int64(len(found))}
	if len(found) > part.Limit {
		page.Items = found[:part.Limit]
		page.Next = new(l.At(page.Items[part.Limit-1]))
	}
	if part.After != nil || page.Next != nil { // else the page is the whole
		page.Total, err = l.Total(ctx)
	}
	return page, err
}

// Total counts the whole list.
func (l List[T]) Total(ctx context.Context) (int64, error) {
	return inTurn(ctx, l.DB, func() (int64, error) {
		return Value[int64](ctx, l.DB, ErrNotFound, `SELECT count(*)`+l.From, l.Args, "count %s", l.Subject)
	})
}

// eachPage is the page size of [List.Each].
const eachPage = 1000

// Each yields all rows after a position; nil is the beginning. There may be a million, so it
// reads in pages and holds no connection between them.
func (l List[T]) Each(ctx context.Context, after *Position) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			found, err := l.read(ctx, after, eachPage)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, row := range found {
				if !yield(row, nil) {
					return
				}
			}
			if len(found) < eachPage {
				return
			}
			after = new(l.At(found[len(found)-1]))
		}
	}
}

func (l List[T]) read(ctx context.Context, after *Position, limit int) ([]T, error) {
	after = cmp.Or(after, &Position{})
	rows := l.Rows
	if rows == "" {
		rows = `SELECT ` + l.Columns + l.From + ` AND ` + Behind(l.Time, l.ID) + ` ORDER BY ` + l.Time + ` DESC, ` + l.ID + ` DESC LIMIT @limit`
	}
	args := maps.Clone(l.Args)
	args["after_time"], args["after_id"], args["limit"] = OrNull(after.Time), after.ID, limit
	return inTurn(ctx, l.DB, func() ([]T, error) { return All[T](ctx, l.DB, rows, args, "list %s", l.Subject) })
}
