package bqreadings

import (
	"math"

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
