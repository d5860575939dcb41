package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/strictjson"
)

// FuzzReadJSON shows that what is validated is what is used: the plain value and the typed one agree on every field.
func FuzzReadJSON(f *testing.F) {
	f.Add([]byte(`{"name":"a","room_id":1}`))
	f.Add([]byte(`{"name":"a","NAME":"b"}`))
	f.Add([]byte(`{"ſensor_id":"a","sensor_id":"b"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var plain any
		if readJSON(data, &plain) != nil {
			return
		}
		object, ok := plain.(map[string]any)
		if !ok {
			return
		}
		var typed struct {
			Name     any `json:"name"`
			SensorID any `json:"sensor_id"`
			RoomID   any `json:"room_id"`
		}
		if err := readJSON(data, &typed); errors.Is(err, strictjson.ErrTwice) { // in two cases
			return
		} else if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		for field, used := range map[string]any{"name": typed.Name, "sensor_id": typed.SensorID, "room_id": typed.RoomID} {
			var validated any
			for name, value := range object {
				if strings.EqualFold(name, field) {
					validated = value
				}
			}
			want, _ := json.Marshal(validated)
			got, _ := json.Marshal(used)
			must.Equal(t, fmt.Sprintf("%s: %s is validated as %s and used as %s", data, field, want, got), string(want), string(got))
		}
	})
}

// TestOperationIsGivenUp has one wait for a database that never answers, and one stream for minutes. Contract 1.9.
func TestOperationIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		router := NewRouter()
		r := New(router, Config{
			MapError: func(error) (*Error, bool) { return nil, false },
			Log:      logging.New(&log, slog.LevelInfo, ""),
		})
		Register(r, Operation{ID: "hang", Method: http.MethodGet, Path: "/hang", Public: true},
			func(ctx context.Context, _ *struct{}) (*struct{}, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
		var slow iter.Seq2[int, error] = func(yield func(int, error) bool) {
			time.Sleep(10 * handlerTimeout)
			yield(1, nil)
		}
		Register(r, Operation{ID: "stream", Method: http.MethodGet, Path: "/stream", Public: true},
			func(context.Context, *struct{}) (*huma.StreamResponse, error) {
				return Stream(r, EncodedRows(func(i int) int { return i }), func(context.Context) iter.Seq2[int, error] { return slow }), nil
			})
		get := func(ctx context.Context, path string) (*httptest.ResponseRecorder, time.Duration) {
			began, recorder := time.Now(), httptest.NewRecorder()
			router.ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
			return recorder, time.Since(began)
		}
		hung, took := get(t.Context(), "/hang")
		must.Equal(t, "answered, after", []any{http.StatusInternalServerError, 30 * time.Second}, []any{hung.Code, took})
		// The client is there still: it is no request that was canceled.
		must.Contain(t, "the log", log.String(), `"severity":"ERROR"`, "request failed", "deadline exceeded")
		log.Reset()
		left, leave := context.WithCancel(t.Context())
		leave()
		gone, _ := get(left, "/hang")
		if got := log.String(); gone.Code != StatusClientGone || strings.Contains(got, "ERROR") || !strings.Contains(got, "request canceled") {
			t.Errorf("of a client that has gone %d, the log says %s", gone.Code, got)
		}
		if answer, took := get(t.Context(), "/stream"); answer.Code != http.StatusOK || answer.Body.String() != "[1]\n" || took < 5*time.Minute {
			t.Errorf("streamed %d %s after %s", answer.Code, answer.Body, took)
		}
	})
}

// TestWaitingOutlivesTheReadTimeout has an operation wait longer than a request may take to be read. Contract 1.9.
func TestWaitingOutlivesTheReadTimeout(t *testing.T) {
	t.Parallel()
	router := NewRouter()
	r := New(router, Config{MapError: func(error) (*Error, bool) { return nil, false }, Log: logging.Discard()})
	Register(r, Operation{ID: "wait", Method: http.MethodGet, Path: "/wait", Public: true, Wait: time.Second},
		func(ctx context.Context, _ *struct{}) (*struct{}, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Second):
				return &struct{}{}, nil
			}
		})
	server := httptest.NewUnstartedServer(router)
	server.Config.ReadTimeout, server.Config.WriteTimeout = 200*time.Millisecond, 200*time.Millisecond
	server.Start()
	t.Cleanup(server.Close)
	must.Eventually(t, "it is answered", func() bool { // a busy machine may take longer to read a request
		answer, err := server.Client().Get(server.URL + "/wait")
		if err == nil {
			_ = answer.Body.Close()
		}
		return err == nil && answer.StatusCode == http.StatusNoContent
	})
}

// TestTurnsGoFromAccountToAccount has one account ask for more turns than may wait: another gets the next one.
func TestTurnsGoFromAccountToAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(1)
		var served, refused []int64 // by account; one has the turn at a time
		var mutex sync.Mutex
		wait := func(account int64) {
			done, err := turns.Wait(fairqueue.WithAccount(t.Context(), account))
			mutex.Lock()
			defer mutex.Unlock()
			if err == nil {
				served = append(served, account)
				done()
				return
			}
			busy, ok := (&API{}).errorOf(err)
			must.Hold(t, ok && busy.Status == http.StatusServiceUnavailable && busy.GetHeaders().Get("Retry-After") == "10",
				"refused with %v", err)
			refused = append(refused, account)
		}
		end := must.Get(turns.Wait(fairqueue.WithAccount(t.Context(), 1)))(t)
		var requests sync.WaitGroup
		for range 2 * maxTurnsWaiting {
			requests.Go(func() { wait(1) })
		}
		synctest.Wait()
		requests.Go(func() { wait(2) })
		synctest.Wait()
		end()
		requests.Wait()
		must.Equal(t, "served, refused, second", []int{maxTurnsWaiting, maxTurnsWaiting + 1, 2},
			[]int{len(served), len(refused), int(served[1])})
	})
}
