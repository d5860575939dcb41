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
