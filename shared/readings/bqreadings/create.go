package bqreadings

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"cloud.google.com/go/bigquery"
	"google.golang.org/api/googleapi"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/descriptorpb"
)

// schema returns the columns of the fields of a row.
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
		column.Required = number != fieldCustomerID // came later: old rows have none
		columns = append(columns, column)
	}
	return columns
}

// hourlySchema returns the columns of the hourly aggregates. The open channel is 0.
func hourlySchema() bigquery.Schema {
	columns := bigquery.Schema{
		{Name: "node_id", Type: bigquery.StringFieldType, Required: true},
		{Name: "customer_id", Type: bigquery.IntegerFieldType, Required: true},
		{Name: "hour", Type: bigquery.TimestampFieldType, Required: true},
		{Name: "readings", Type: bigquery.IntegerFieldType, Required: true},
	}
	for _, value := range []string{"avg_temperature", "min_temperature", "max_temperature", "avg_humidity", "min_humidity", "max_humidity"} {
		columns = append(columns, &bigquery.FieldSchema{Name: value, Type: bigquery.FloatFieldType, Required: true})
	}
	return columns
}

// runsSchema returns the columns of the runs that aggregate.
func runsSchema() bigquery.Schema {
	return bigquery.Schema{
		{Name: "started", Type: bigquery.TimestampFieldType, Required: true},
		{Name: "complete_until", Type: bigquery.TimestampFieldType, Required: true},
		{Name: "days", Type: bigquery.StringFieldType}, // came later
	}
}

// Create makes the dataset and the tables where they are missing, as terraform makes
// them. It is for emulators, which begin empty.
func (s *Store) Create(ctx context.Context) error {
	dataset := s.client.Dataset(s.config.Dataset)
	if err := dataset.Create(ctx, &bigquery.DatasetMetadata{}); err != nil && !exists(err) {
		return fmt.Errorf("create dataset %s: %w", s.config.Dataset, err)
	}
	for table, metadata := range map[string]*bigquery.TableMetadata{
		s.config.Table: {
			Schema:                 schema(),
			TimePartitioning:       &bigquery.TimePartitioning{Type: bigquery.DayPartitioningType, Field: "timestamp"},
			RequirePartitionFilter: true,
			Clustering:             &bigquery.Clustering{Fields: []string{"node_id", "message_id"}},
		},
		s.config.Table + hourlySuffix: {
			Schema:           hourlySchema(),
			TimePartitioning: &bigquery.TimePartitioning{Type: bigquery.MonthPartitioningType, Field: "hour"},
			Clustering:       &bigquery.Clustering{Fields: []string{"node_id"}},
		},
		s.config.Table + runsSuffix: {Schema: runsSchema()},
	} {
		if err := dataset.Table(table).Create(ctx, metadata); err != nil && !exists(err) {
			return fmt.Errorf("create table %s: %w", table, err)
		}
	}
	return nil
}

// exists reports whether BigQuery has refused to make what there is.
func exists(err error) bool {
	refused, ok := errors.AsType[*googleapi.Error](err)
	return ok && refused.Code == http.StatusConflict
}
