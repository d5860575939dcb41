package bqtest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	bq "google.golang.org/api/bigquery/v2"
)

// Answer is the answer to a query: rows, or an error of BigQuery.
type Answer struct {
	Schema []*bq.TableFieldSchema
	Rows   [][]string // values as BigQuery's JSON writes them
	Status int        // of an error; 0 for none
	Reason string     // of an error, such as bytesBilledLimitExceeded
}

// Null is the value NULL.
const Null = "\x00"

// Column describes a column of an answer.
func Column(name, kind string) *bq.TableFieldSchema {
	return &bq.TableFieldSchema{Name: name, Type: kind, Mode: "NULLABLE"}
}

// QueryServer serves jobs.query and records the queries.
type QueryServer struct {
	URL string // for BIGQUERY_EMULATOR_HOST

	mu       sync.Mutex
	requests []*bq.QueryRequest
	answer   func(*bq.QueryRequest) Answer
}

// NewQueryServer serves until the test ends. answer answers every query.
func NewQueryServer(tb testing.TB, answer func(*bq.QueryRequest) Answer) *QueryServer {
	tb.Helper()
	s := &QueryServer{answer: answer}
	server := httptest.NewServer(s)
	tb.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Requests are the queries seen so far.
func (s *QueryServer) Requests() []*bq.QueryRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*bq.QueryRequest(nil), s.requests...)
}

// ServeHTTP implements [http.Handler].
func (s *QueryServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/queries") {
		http.NotFound(w, r)
		return
	}
	var request bq.QueryRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, &request)
	s.mu.Unlock()
	answer := s.answer(&request)
	w.Header().Set("Content-Type", "application/json")
	if answer.Status != 0 {
		w.WriteHeader(answer.Status)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{
			"code": answer.Status, "message": answer.Reason, "errors": []map[string]string{{"reason": answer.Reason, "message": answer.Reason}},
		}})
		return
	}
	response := &bq.QueryResponse{
		Kind: "bigquery#queryResponse", JobComplete: true, QueryId: "query-1",
		Schema: &bq.TableSchema{Fields: answer.Schema}, TotalRows: uint64(len(answer.Rows)),
	}
	for _, row := range answer.Rows {
		cells := make([]*bq.TableCell, len(row))
		for i, value := range row {
			cells[i] = &bq.TableCell{V: value}
			if value == Null {
				cells[i].V = nil
			}
		}
		response.Rows = append(response.Rows, &bq.TableRow{F: cells})
	}
	_ = json.NewEncoder(w).Encode(response)
}
