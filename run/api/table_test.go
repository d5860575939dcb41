package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
)

// testCase is one row of the specification's tables: a call and its answer.
type testCase struct {
	method, path string
	auth         authorization
	body         string
	status       int
	answer       matcher
}

type authorization bool

const (
	open      authorization = false
	withToken authorization = true
)

// matcher is what an answer must look like.
type matcher interface {
	check(s *testAPI, value any) error
}

// object is a JSON object with exactly these members.
type object map[string]matcher

func (o object) check(s *testAPI, value any) error {
	got, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("%v is no object", value)
	}
	if want, has := slices.Sorted(maps.Keys(o)), slices.Sorted(maps.Keys(got)); !slices.Equal(want, has) {
		return fmt.Errorf("fields %v, want %v", has, want)
	}
	for name, member := range o {
		if err := member.check(s, got[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// list is a JSON array of exactly these items.
type list []matcher

func (l list) check(s *testAPI, value any) error {
	got, ok := value.([]any)
	if !ok {
		return fmt.Errorf("%v is no array", value)
	}
	if len(got) != len(l) {
		return fmt.Errorf("%d items, want %d", len(got), len(l))
	}
	for i, item := range l {
		if err := item.check(s, got[i]); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

// save is an object of which a field is saved under a name for later cases.
type save struct {
	name, field string
	object      object
}

func (k save) check(s *testAPI, value any) error {
	if err := k.object.check(s, value); err != nil {
		return err
	}
	switch field := value.(map[string]any)[k.field].(type) {
	case string:
		s.saved[k.name] = field
	case float64:
		s.saved[k.name] = fmt.Sprintf("%.0f", field)
	}
	return nil
}

// matcherFunc is a matcher that is a function.
type matcherFunc func(s *testAPI, value any) error

func (r matcherFunc) check(s *testAPI, value any) error { return r(s, value) }

// is demands one value.
func is(want any) matcher {
	return matcherFunc(func(_ *testAPI, value any) error {
		if !reflect.DeepEqual(value, want) {
			return fmt.Errorf("%v, want %v", value, want)
		}
		return nil
	})
}

// equalsSaved demands a number that was kept.
func equalsSaved(name string) matcher {
	return matcherFunc(func(s *testAPI, value any) error {
		if got := fmt.Sprint(value); got != s.saved[name] {
			return fmt.Errorf("%s, want %s of %s", got, s.saved[name], name)
		}
		return nil
	})
}

// detail demands an error's body.
func detail(want string) matcher { return object{"detail": is(want)} }

var (
	integer = matcherFunc(func(_ *testAPI, value any) error {
		if n, ok := value.(float64); !ok || n != math.Trunc(n) {
			return fmt.Errorf("%v is no integer", value)
		}
		return nil
	})
	words = matcherFunc(func(_ *testAPI, value any) error {
		if s, ok := value.(string); !ok || s == "" {
			return fmt.Errorf("%v is no text", value)
		}
		return nil
	})
	null     = is(nil)
	anything = matcherFunc(func(*testAPI, any) error { return nil })
	// nothing and page are checked by the body itself, not by its JSON.
	nothing matcher = matcherFunc(nil)
	page    matcher = matcherFunc(nil)
)

// reply is an answer, read whole.
type reply struct {
	request string // method and address
	status  int
	header  http.Header
	body    []byte
}

// is reports an answer of another status.
func (r reply) is(t tester, status int) {
	t.Helper()
	if r.status != status {
		t.Errorf("%s: %d %s, want %d", r.request, r.status, r.body, status)
	}
}

// has reports an answer of another status, or without a part.
func (r reply) has(t tester, status int, part string) {
	t.Helper()
	if r.status != status || !strings.Contains(string(r.body), part) {
		t.Errorf("%s: %d %s, want %d with %s", r.request, r.status, r.body, status, part)
	}
}

// tester is what testing and rapid have in common.
type tester interface {
	Helper()
	Errorf(format string, arguments ...any)
	Fatalf(format string, arguments ...any)
}

// fraction finds the times of an answer that have a fraction of a second.
var fraction = regexp.MustCompile(`T\d\d:\d\d:\d\d(\.\d+)Z`)

// do sends a request and checks what holds for every answer: it is as documented, and its times
// have microseconds or no fraction (contract 1.1).
func (s *testAPI) do(t tester, request *http.Request) reply {
	t.Helper()
	response, err := s.client.Do(request)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", request.Method, request.URL, err)
	}
	got := reply{request.Method + " " + request.URL.String(), response.StatusCode, response.Header, bytes.TrimSuffix(body, []byte("\n"))}
	for _, at := range fraction.FindAllSubmatch(got.body, -1) {
		if len(at[1]) != len(".000000") {
			t.Errorf("%s %s has a time with a fraction of %q", request.Method, request.URL, at[1])
		}
	}
	if s.document != nil {
		if err := s.document.JudgeAnswer(request, got.status, got.header, got.body); err != nil {
			t.Errorf("the document says otherwise: %v", err)
		}
	}
	return got
}

// call sends a JSON body with a token, either may be empty.
func (s *testAPI) call(tb testing.TB, token, method, path, body string) reply {
	tb.Helper()
	return s.send(tb, token, method, path, body, nil)
}

// send is call with further fields of the header.
func (s *testAPI) send(tb testing.TB, token, method, path, body string, header map[string]string) reply {
	tb.Helper()
	request := must.Get(http.NewRequestWithContext(tb.Context(), method, s.url+path, strings.NewReader(body)))(tb)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	return s.do(tb, request)
}

// run makes the calls of the cases in their order.
func (s *testAPI) run(t *testing.T, cases []testCase) {
	t.Helper()
	for _, l := range cases {
		path, body := s.expand(l.path), s.expand(l.body)
		name := l.method + " " + path + " " + body
		token := ""
		if l.auth == withToken {
			token = s.saved["token"]
			s.call(t, "", l.method, path, body).is(t, http.StatusUnauthorized)
		}
		got := s.call(t, token, l.method, path, body)
		if got.status != l.status {
			t.Errorf("%.200s\n %d %.300s, want %d", name, got.status, got.body, l.status)
			continue
		}
		if err := l.compare(s, got); err != nil {
			t.Errorf("%.200s\n %v in %.300s", name, err, got.body)
		}
	}
}

func (l testCase) compare(s *testAPI, got reply) error {
	if check, ok := l.answer.(matcherFunc); ok && check == nil {
		if (l.status == http.StatusNoContent) != (len(got.body) == 0) {
			return fmt.Errorf("a body of %d bytes", len(got.body))
		}
		return nil
	}
	if kind := got.header.Get("Content-Type"); kind != "application/json" {
		return fmt.Errorf("Content-Type %q", kind)
	}
	var value any
	if err := json.Unmarshal(got.body, &value); err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	return l.answer.check(s, value)
}

// expand replaces {name} by the value saved under it; other braces stay.
func (s *testAPI) expand(template string) string {
	for name, value := range s.saved {
		template = strings.ReplaceAll(template, "{"+name+"}", value)
	}
	return template
}
