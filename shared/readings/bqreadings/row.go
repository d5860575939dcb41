package bqreadings

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"

	"cloud.google.com/go/bigquery"
	"google.golang.org/api/googleapi"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/descriptorpb"

	"coldaisle.dev/shared/reading"
)

// The columns of the table, in the order of their field numbers on the wire.
const (
	fieldNodeID protowire.Number = iota + 1
	fieldMessageID
	fieldTimestamp // microseconds since 1970, BigQuery's form of TIMESTAMP
	fieldTemperature
	fieldHumidity
	fieldCustomerID             // null in the open channel
	fieldUncorrectedTemperature // null where no correction applied
	fieldUncorrectedHumidity
)

// rowDescriptor describes the bytes of [encodeRow] to BigQuery:
// fields are matched to columns by name. The fields are those of the original
// schema; a column added to the table later stays null until it is named here.
func rowDescriptor() *descriptorpb.DescriptorProto {
	field := func(number protowire.Number, name string, kind descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{
			Name: new(name), Number: new(int32(number)), Type: kind.Enum(),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		}
	}
	return &descriptorpb.DescriptorProto{
		Name: new("Reading"),
		Field: []*descriptorpb.FieldDescriptorProto{
			field(fieldNodeID, "node_id", descriptorpb.FieldDescriptorProto_TYPE_STRING),
			field(fieldMessageID, "message_id", descriptorpb.FieldDescriptorProto_TYPE_STRING),
			field(fieldTimestamp, "timestamp", descriptorpb.FieldDescriptorProto_TYPE_INT64),
			field(fieldTemperature, "temperature", descriptorpb.FieldDescriptorProto_TYPE_DOUBLE),
			field(fieldHumidity, "humidity", descriptorpb.FieldDescriptorProto_TYPE_DOUBLE),
			field(fieldCustomerID, "customer_id", descriptorpb.FieldDescriptorProto_TYPE_INT64),
			field(fieldUncorrectedTemperature, "uncorrected_temperature", descriptorpb.FieldDescriptorProto_TYPE_DOUBLE),
			field(fieldUncorrectedHumidity, "uncorrected_humidity", descriptorpb.FieldDescriptorProto_TYPE_DOUBLE),
		},
	}
}

// encodeRow writes a reading as a message of [rowDescriptor].
func encodeRow(r reading.Reading) []byte {
	// Two short texts, six numbers of at most ten bytes, and their tags.
	row := make([]byte, 0, len(r.NodeID)+len(r.MessageID)+70)
	row = protowire.AppendTag(row, fieldNodeID, protowire.BytesType)
	row = protowire.AppendString(row, r.NodeID)
	row = protowire.AppendTag(row, fieldMessageID, protowire.BytesType)
	row = protowire.AppendString(row, r.MessageID)
	row = protowire.AppendTag(row, fieldTimestamp, protowire.VarintType)
	row = protowire.AppendVarint(row, uint64(reading.TruncateTime(r.Time).UnixMicro()))
	number := func(field protowire.Number, value *float64) {
		if value != nil {
			row = protowire.AppendTag(row, field, protowire.Fixed64Type)
			row = protowire.AppendFixed64(row, math.Float64bits(*value))
		}
	}
	number(fieldTemperature, reading.Pointer(r.Temperature))
	number(fieldHumidity, reading.Pointer(r.Humidity))
	if r.Channel != reading.Open {
		row = protowire.AppendTag(row, fieldCustomerID, protowire.VarintType)
		row = protowire.AppendVarint(row, uint64(r.Channel)) //nolint:gosec // ids of customers are positive
	}
	temperature, humidity := r.Uncorrected()
	number(fieldUncorrectedTemperature, temperature)
	number(fieldUncorrectedHumidity, humidity)
	return row
}

func schema() bigquery.Schema {
	types := map[descriptorpb.FieldDescriptorProto_Type]bigquery.FieldType{
		descriptorpb.FieldDescriptorProto_TYPE_STRING: bigquery.StringFieldType,
		descriptorpb.FieldDescriptorProto_TYPE_INT64:  bigquery.IntegerFieldType,
		descriptorpb.FieldDescriptorProto_TYPE_DOUBLE: bigquery.FloatFieldType,
	}
	var columns bigquery.Schema
	for _, field := range rowDescriptor().GetField() {
		column := &bigquery.FieldSchema{Name: field.GetName(), Type: types[field.GetType()]}
		number := protowire.Number(field.GetNumber())
		if number == fieldTimestamp {
			column.Type = bigquery.TimestampFieldType // a whole number of microseconds
		}
		column.Required = number <= fieldTimestamp // a reading may lack a value, and old rows have no customer_id
		columns = append(columns, column)
	}
	return columns
}

// Create creates the dataset and the table if they are missing, as terraform does. It is for
// emulators, which start empty.
func (s *Store) Create(ctx context.Context) error {
	dataset := s.client.Dataset(s.config.Dataset)
	if err := dataset.Create(ctx, &bigquery.DatasetMetadata{}); err != nil && !exists(err) {
		return fmt.Errorf("create dataset %s: %w", s.config.Dataset, err)
	}
	err := dataset.Table(s.config.Table).Create(ctx, &bigquery.TableMetadata{
		Schema:                 schema(),
		TimePartitioning:       &bigquery.TimePartitioning{Type: bigquery.DayPartitioningType, Field: "timestamp"},
		RequirePartitionFilter: true,
		Clustering:             &bigquery.Clustering{Fields: []string{"node_id", "message_id"}},
	})
	if err != nil && !exists(err) {
		return fmt.Errorf("create table %s: %w", s.config.Table, err)
	}
	return nil
}

// exists reports whether BigQuery refused to create something that exists.
func exists(err error) bool {
	refused, ok := errors.AsType[*googleapi.Error](err)
	return ok && refused.Code == http.StatusConflict
}
