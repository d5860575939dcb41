package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
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
	answer       string // {name} stands for what was saved, a placeholder for what is not known beforehand
}

type authorization bool

const (
	open      authorization = false
	withToken authorization = true
)

// placeholder stands for such a value. One with a name saves it for later cases.
var placeholder = regexp.MustCompile(`<(\w*)=?(number|text|anything)>`)

// saved is an answer whose first placeholder has a name.
func saved(name, answer string) string { return strings.Replace(answer, "<", "<"+name+"=", 1) }

// detail is an error's body.
func detail(text string) string { return fmt.Sprintf(`{"detail":%q}`, text) }

func list(items ...string) string { return "[" + strings.Join(items, ",") + "]" }

// matches compares an answer, byte by byte.
func (s *testAPI) matches(want string, body []byte) bool {
	var names []string
	pattern := placeholder.ReplaceAllStringFunc(regexp.QuoteMeta(want), func(found string) string {
		parts := placeholder.FindStringSubmatch(found)
		names = append(names, cmp.Or(parts[1], "unnamed"))
		return map[string]string{"number": `([1-9]\d*)`, "text": `"([^"]+)"`, "anything": `(.+)`}[parts[2]]
	})
	values := regexp.MustCompile("(?s)^" + pattern + "$").FindSubmatch(body)
	if values == nil {
		return false
	}
	for i, name := range names {
		s.saved[name] = string(values[i+1])
	}
	return true
}

// reply is an answer, read whole.
type reply struct {
	request string // method and address
	status  int
	header  http.Header
	body    []byte
}

// is reports an answer of another status.
func (r reply) is(t tester, status int) reply {
	t.Helper()
	if r.status != status {
		t.Errorf("%s: %d %s, want %d", r.request, r.status, r.body, status)
	}
	return r
}

// has reports an answer of another status, or without one of the parts.
func (r reply) has(t tester, status int, parts ...string) reply {
	t.Helper()
	for _, part := range parts {
		if r.status != status || !strings.Contains(string(r.body), part) {
			t.Errorf("%s: %d %s, want %d with %s", r.request, r.status, r.body, status, part)
		}
	}
	return r
}

// lacks reports an answer with one of the parts.
func (r reply) lacks(t tester, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(string(r.body), part) {
			t.Errorf("%s: %d %s, want it without %s", r.request, r.status, r.body, part)
		}
	}
}

// says reports an answer that is not this error.
func (r reply) says(t tester, status int, text string) reply {
	t.Helper()
	kind, want := r.header.Get("Content-Type"), detail(text)
	if r.status != status || string(r.body) != want || kind != "application/json" {
		t.Errorf("%s: %d %s %s, want %d %s", r.request, r.status, kind, r.body, status, want)
	}
	return r
}

// into decodes a success.
func into[T any](tb testing.TB, got reply) (body T) {
	tb.Helper()
	if got.status >= 300 {
		tb.Fatalf("%s: %d %s", got.request, got.status, got.body)
	}
	must.Do(tb, json.Unmarshal(got.body, &body))
	return body
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

// run makes the calls of a section's cases in their order.
func (s *testAPI) run(t *testing.T, section string, cases []testCase) {
	t.Helper()
	for _, l := range cases {
		path, body := s.expand(l.path), s.expand(l.body)
		name := section + ": " + l.method + " " + path + " " + body
		token := ""
		if l.auth == withToken {
			token = s.saved["token"]
			s.call(t, "", l.method, path, body).is(t, http.StatusUnauthorized)
		}
		got := s.call(t, token, l.method, path, body)
		want := s.expand(l.answer)
		if got.status != l.status || !s.matches(want, got.body) {
			t.Errorf("%.200s\n %d %.300s, want %d %.300s", name, got.status, got.body, l.status, want)
		}
		if strings.HasPrefix(want, "{") || strings.HasPrefix(want, "[") {
			must.Equal(t, name+": Content-Type", "application/json", got.header.Get("Content-Type"))
		}
	}
}

// expand replaces {name} by the value saved under it; other braces stay.
func (s *testAPI) expand(template string) string {
	for name, value := range s.saved {
		template = strings.ReplaceAll(template, "{"+name+"}", value)
	}
	return template
}
