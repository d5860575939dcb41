// Package bqtest is a fake of BigQuery in the test's process. It serves the two
// protocols that bqreadings uses: AppendRows of the Storage Write API over gRPC, and
// jobs.query over HTTP. Tests and benchmarks see the requests, and can make them fail as
// BigQuery does.
//
// Unlike an emulator it does not run SQL. It decodes and stores appended rows, records
// queries, and answers them with the test's rows.
package bqtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigquery/storage/apiv1/storagepb"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/reading"
)

// Failure says how one append fails. With the zero value it succeeds.
type Failure struct {
	// Code is an error in the response. Nothing is stored, and the stream stays
	// open.
	Code    codes.Code
	Message string
	// RowErrors are the errors of rows by their index. Nothing is stored.
	RowErrors map[int64]string
	// BreakStream ends the stream without an answer. With StoreFirst the rows are stored
	// before, as if only the acknowledgement were lost.
	BreakStream, StoreFirst bool
	// Hang never answers.
	Hang bool
}

func (f Failure) none() bool {
	return f.Code == codes.OK && len(f.RowErrors) == 0 && !f.BreakStream && !f.Hang
}

// AppendServer is a BigQueryWrite server. Set its fields before the first
// append.
type AppendServer struct {
	storagepb.UnimplementedBigQueryWriteServer

	// Latency is the time between a request and its answer. Requests of one stream
	// do not wait for each other's.
	Latency time.Duration
	// Discard drops rows instead of keeping them, for benchmarks.
	Discard bool
	// Failure decides on the nth append of all streams, from 1. It may be nil.
	Failure func(nth int, rows []reading.Reading) Failure

	address string
	server  *grpc.Server

	mu      sync.Mutex
	rows    []reading.Reading
	appends int
	streams int
}

// NewAppendServer serves until the test ends.
func NewAppendServer(tb testing.TB) *AppendServer {
	tb.Helper()
	s := &AppendServer{}
	listener := must.Get((&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0"))(tb)
	s.address = listener.Addr().String()
	s.server = grpc.NewServer()
	storagepb.RegisterBigQueryWriteServer(s.server, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.server.Serve(listener) })
	tb.Cleanup(func() { s.server.Stop(); serving.Wait() })
	return s
}

// Address is host:port, for BIGQUERY_STORAGE_EMULATOR_HOST.
func (s *AppendServer) Address() string { return s.address }

// Rows are all rows stored so far, duplicates included.
func (s *AppendServer) Rows() []reading.Reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]reading.Reading(nil), s.rows...)
}

// Counts are the append requests and streams seen so far.
func (s *AppendServer) Counts() (appends, streams int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.appends, s.streams
}

// GetWriteStream returns the table's location to the client.
func (s *AppendServer) GetWriteStream(_ context.Context, request *storagepb.GetWriteStreamRequest) (*storagepb.WriteStream, error) {
	return &storagepb.WriteStream{
		Name: request.GetName(), Type: storagepb.WriteStream_COMMITTED, Location: "europe-west1",
	}, nil
}

// reply is an answer with the time at which it is due.
type reply struct {
	response *storagepb.AppendRowsResponse
	due      time.Time
	err      error // ends the stream
}

// AppendRows serves one stream. It handles requests as they arrive and answers them
// in their order, each when it is due.
func (s *AppendServer) AppendRows(stream storagepb.BigQueryWrite_AppendRowsServer) error {
	s.mu.Lock()
	s.streams++
	s.mu.Unlock()
	replies := make(chan reply, 1000)
	go func() { // ends with the stream
		defer close(replies)
		var schema protoreflect.MessageDescriptor
		for {
			request, err := stream.Recv()
			if err != nil {
				return
			}
			if written := request.GetProtoRows().GetWriterSchema().GetProtoDescriptor(); written != nil {
				if schema, err = descriptor(written); err != nil {
					replies <- reply{err: status.Error(codes.InvalidArgument, err.Error())}
					return
				}
			}
			select {
			case replies <- s.handle(request, schema):
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for r := range replies {
		if wait := time.Until(r.due); wait > 0 && pause.For(stream.Context(), wait) != nil {
			return nil
		}
		switch {
		case r.err != nil:
			return r.err
		case r.response == nil: // hang
			<-stream.Context().Done()
			return nil
		}
		if err := stream.Send(r.response); err != nil {
			return fmt.Errorf("answer append: %w", err)
		}
	}
	return nil
}

// handle decodes one request and stores or refuses its rows.
func (s *AppendServer) handle(request *storagepb.AppendRowsRequest, schema protoreflect.MessageDescriptor) reply {
	due := time.Now().Add(s.Latency) //nolint:forbidigo // simulates a network
	if schema == nil {
		return reply{err: status.Error(codes.InvalidArgument, "first request of a stream carries no schema"), due: due}
	}
	var rows []reading.Reading
	for _, encoded := range request.GetProtoRows().GetRows().GetSerializedRows() {
		row, err := decode(schema, encoded)
		if err != nil {
			return reply{err: status.Error(codes.InvalidArgument, err.Error()), due: due}
		}
		rows = append(rows, row)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.appends++
	var failure Failure
	if s.Failure != nil {
		failure = s.Failure(s.appends, rows)
	}
	if (failure.none() || failure.StoreFirst) && !s.Discard {
		s.rows = append(s.rows, rows...)
	}
	switch {
	case failure.BreakStream:
		return reply{err: status.Error(codes.Unavailable, "stream broken"), due: due}
	case failure.Hang:
		return reply{due: due}
	case failure.none():
		return reply{due: due, response: &storagepb.AppendRowsResponse{
			WriteStream: request.GetWriteStream(),
			Response:    &storagepb.AppendRowsResponse_AppendResult_{AppendResult: &storagepb.AppendRowsResponse_AppendResult{}},
		}}
	}
	return reply{due: due, response: refusal(failure)}
}

func refusal(failure Failure) *storagepb.AppendRowsResponse {
	code, message := failure.Code, failure.Message
	if len(failure.RowErrors) > 0 {
		code, message = codes.InvalidArgument, "rows are malformed"
	}
	response := &storagepb.AppendRowsResponse{Response: &storagepb.AppendRowsResponse_Error{
		Error: &spb.Status{Code: int32(code), Message: message},
	}}
	for index, text := range failure.RowErrors {
		response.RowErrors = append(response.RowErrors, &storagepb.RowError{
			Index: index, Code: storagepb.RowError_FIELDS_ERROR, Message: text,
		})
	}
	return response
}

// descriptor builds the message type from the schema that a client sends.
func descriptor(written *descriptorpb.DescriptorProto) (protoreflect.MessageDescriptor, error) {
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("row.proto"), Syntax: new("proto2"),
		MessageType: []*descriptorpb.DescriptorProto{written},
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("writer schema: %w", err)
	}
	return file.Messages().Get(0), nil
}

// decode reads a row by the writer's own schema, as BigQuery does, and checks
// it against the table's columns.
func decode(schema protoreflect.MessageDescriptor, encoded []byte) (reading.Reading, error) {
	row := dynamicpb.NewMessage(schema)
	if err := proto.Unmarshal(encoded, row); err != nil {
		return reading.Reading{}, fmt.Errorf("row: %w", err)
	}
	if len(row.GetUnknown()) > 0 {
		return reading.Reading{}, errors.New("row has fields that the schema lacks")
	}
	r := reading.Reading{Temperature: reading.Missing(), Humidity: reading.Missing()}
	temperature, humidity := reading.Missing(), reading.Missing()
	for column, set := range map[protoreflect.Name]func(protoreflect.Value){
		"node_id":     func(v protoreflect.Value) { r.NodeID = v.String() },
		"message_id":  func(v protoreflect.Value) { r.MessageID = v.String() },
		"timestamp":   func(v protoreflect.Value) { r.Time = time.UnixMicro(v.Int()).UTC() },
		"temperature": func(v protoreflect.Value) { r.Temperature = v.Float() },
		"humidity":    func(v protoreflect.Value) { r.Humidity = v.Float() },
		"customer_id": func(v protoreflect.Value) { r.Channel = reading.Channel(v.Int()) },

		"uncorrected_temperature": func(v protoreflect.Value) { temperature = v.Float() },
		"uncorrected_humidity":    func(v protoreflect.Value) { humidity = v.Float() },
	} {
		switch field := schema.Fields().ByName(column); {
		case field != nil && row.Has(field):
			set(row.Get(field))
		case column == "node_id" || column == "message_id" || column == "timestamp": // the others may be null
			return reading.Reading{}, fmt.Errorf("row has no %s", column)
		}
	}
	if !reading.Has(r.Temperature) && !reading.Has(r.Humidity) {
		return reading.Reading{}, errors.New("row holds no number")
	}
	r = r.WithUncorrected(reading.Pointer(temperature), reading.Pointer(humidity))
	return r, nil
}
