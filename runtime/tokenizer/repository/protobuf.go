package repository

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// protobufField is one field of a protocol buffer as it stands in a file.
type protobufField struct {
	number uint64
	wire   byte
	// value is that of a varint or of a fixed number.
	value uint64
	// bytes are those of a text, of bytes or of a message; they alias the file.
	bytes []byte
}

// Wire types of protocol buffers. Groups, 3 and 4, are in no file that this package reads.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// readProtobuf calls field for each field of a message, in order. It fails at bytes that are not a message.
func readProtobuf(b []byte, field func(protobufField) error) error {
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return fmt.Errorf("invalid field: %w", tensor.ErrCorrupt)
		}
		f := protobufField{number: key >> 3, wire: byte(key & 7)}
		b = b[n:]
		if f.number == 0 || f.number > 1<<29-1 {
			return fmt.Errorf("field number %d: %w", f.number, tensor.ErrCorrupt)
		}
		size := 0
		switch f.wire {
		case wireVarint:
			if f.value, size = binary.Uvarint(b); size <= 0 {
				return fmt.Errorf("field %d ends early: %w", f.number, tensor.ErrCorrupt)
			}
		case wireFixed64, wireFixed32:
			if size = 8; f.wire == wireFixed32 {
				size = 4
			}
			if len(b) < size {
				return fmt.Errorf("field %d ends early: %w", f.number, tensor.ErrCorrupt)
			}
			if f.wire == wireFixed32 {
				f.value = uint64(binary.LittleEndian.Uint32(b))
			} else {
				f.value = binary.LittleEndian.Uint64(b)
			}
		case wireBytes:
			length, n := binary.Uvarint(b)
			if n <= 0 || length > uint64(len(b)-n) {
				return fmt.Errorf("field %d ends early: %w", f.number, tensor.ErrCorrupt)
			}
			f.bytes, size = b[n:n+int(length)], n+int(length)
		default:
			return fmt.Errorf("field %d has wire type %d: %w", f.number, f.wire, tensor.ErrCorrupt)
		}
		if err := field(f); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// is demands a wire type.
func (f protobufField) is(wire byte) error {
	if f.wire != wire {
		return fmt.Errorf("field %d has wire type %d, not %d: %w", f.number, f.wire, wire, tensor.ErrCorrupt)
	}
	return nil
}

func (f protobufField) toBool(to *bool) error {
	*to = f.value != 0
	return f.is(wireVarint)
}

// toInt takes an int32 or an enumeration.
func (f protobufField) toInt(to *int32) error {
	*to = int32(f.value)
	return f.is(wireVarint)
}

func (f protobufField) toFloat(to *float32) error {
	*to = math.Float32frombits(uint32(f.value))
	return f.is(wireFixed32)
}

func (f protobufField) toText(to *string) error {
	*to = string(f.bytes)
	return f.is(wireBytes)
}

func (f protobufField) toBytes(to *[]byte) error {
	*to = f.bytes
	return f.is(wireBytes)
}
