package rest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"iter"
	"net/url"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/shared/fairqueue"
)

// Cursor is the query parameter after of a list that is read page by page; K is the key of
// the list's order. The client gets it from the Link header of the page before. It names its
// account and list, so that another's cursor is refused. It needs no signature: a forged one
// is only a place in the caller's own list, because every query names its customer.
type Cursor[K any] struct {
	Last *K // key of the last item of the page before; nil for the first page

	text    string
	account int64
	url     url.URL
}

// place is the content of a cursor.
type place[K any] struct {
	Account int64  `json:"account"`
	List    string `json:"list"` // path of the list
	Last    *K     `json:"last"`
}

const errCursor = "must be that of a Link header of this list"

// Schema describes a cursor.
func (Cursor[K]) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type:        huma.TypeString,
		MaxLength:   new(1000),
		Description: "Where the list goes on: the page after the one whose `Link` header has it.",
		Examples:    []any{"eyJhY2NvdW50Ijo3fQ"},
	}
}

// UnmarshalText keeps the text for Resolve, which knows the request.
func (c *Cursor[K]) UnmarshalText(text []byte) error {
	c.text = string(text)
	return nil
}

// Resolve reads the cursor of a request.
func (c *Cursor[K]) Resolve(ctx huma.Context, _ *huma.PathBuffer) []error {
	c.account, c.url = accountOf(ctx.Context()), ctx.URL()
	if c.text == "" {
		return nil
	}
	var found place[K]
	text, err := base64.RawURLEncoding.DecodeString(c.text)
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err != nil || found.Last == nil || found.Account != c.account || found.List != c.url.Path {
		return []error{&huma.ErrorDetail{Location: "query.after", Message: errCursor}}
	}
	c.Last = found.Last
	return nil
}

// headers returns the headers of a page. last is the key of its last item, or nil on the last page.
func (c *Cursor[K]) headers(total int64, last *K) PageHeaders {
	if last == nil {
		return PageHeaders{Total: total}
	}
	text, err := json.Marshal(place[K]{Account: c.account, List: c.url.Path, Last: last})
	if err != nil {
		panic(err) // a key that was read from the store can be encoded
	}
	query := c.url.Query()
	query.Set("after", base64.RawURLEncoding.EncodeToString(text))
	return PageHeaders{Total: total, Link: "<" + c.url.EscapedPath() + "?" + query.Encode() + `>; rel="next"`}
}

// PageHeaders are the headers of a page.
type PageHeaders struct {
	Total int64  `header:"X-Total-Count" doc:"How many there are on all pages."`
	Link  string `header:"Link" doc:"The next page (RFC 8288, rel=next); absent on the last one."`
}

// Page answers a part of a list.
type Page[T any] struct {
	PageHeaders

	Body []T
}

// NewPage returns the page after a cursor, of a list of total items. last is the key of its
// last item, or nil on the last page.
func NewPage[K, T any](after Cursor[K], items []T, total int64, last *K) *Page[T] {
	return &Page[T]{after.headers(total, last), items}
}

// PageStream is a [Page] in one of several forms, see [Stream].
type PageStream struct {
	PageHeaders

	Body func(huma.Context)
}

// NewPageStream is [NewPage] for a stream.
func NewPageStream[K, T any](
	r *API, form RowEncoder[T], after Cursor[K], items func(context.Context) iter.Seq2[T, error], total int64, last *K,
) *PageStream {
	return &PageStream{after.headers(total, last), Stream(r, form, items).Body}
}

// accountOf is the calling account, to which cursors are bound.
func accountOf(ctx context.Context) int64 {
	id, ok := fairqueue.AccountOf(ctx)
	if !ok {
		panic("rest: a list without an account is read page by page")
	}
	return id
}
