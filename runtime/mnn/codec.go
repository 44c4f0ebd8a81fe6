package mnn

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	flatbuffers "github.com/google/flatbuffers/go"
)

// record is a Go value that the file holds as a table.
type record interface {
	// fields visits all fields of the table in the order of their slots, with the names and defaults of mnn.fbs.
	fields(c *codec)
}

// codec visits the fields of a table. The effect of a visit depends on the pass, so that the description for the bounds
// check, the writer and the reader share one list of fields.
type codec struct {
	pass pass
	slot int // of the current field

	described []field

	*encoder
	offsets []flatbuffers.UOffsetT // by slot, of the values outside of the table

	table flatbuffers.Table // verified
	err   error             // the first one
}

type pass int

const (
	describing pass = iota
	writingTables
	writingLists // after the tables in the fields
	writingTable
	reading
)

// describe returns the layout of a table.
func describe(name string, r record) *layout {
	c := &codec{pass: describing, slot: -1}
	r.fields(c)
	return &layout{name, c.described}
}

// mostFields is the number of fields of the largest table.
const mostFields = 17

// table appends a table and returns its offset.
func (e *encoder) table(r record) flatbuffers.UOffsetT {
	c := &codec{encoder: e, offsets: make([]flatbuffers.UOffsetT, 0, mostFields)}
	for _, c.pass = range []pass{writingTables, writingLists, writingTable} {
		if c.pass == writingTable {
			e.StartObject(len(c.offsets))
		}
		c.slot = -1
		r.fields(c)
	}
	return e.EndObject()
}

// read fills a zero value from a verified table.
func read(t flatbuffers.Table, r record) error {
	c := &codec{pass: reading, slot: -1, table: t}
	r.fields(c)
	return c.err
}

// next begins a field.
func (c *codec) next(f field) pass {
	c.slot++
	switch c.pass {
	case describing:
		c.described = append(c.described, f)
	case writingTables:
		c.offsets = append(c.offsets, 0)
	case writingTable:
		if f.kind != byteValue && f.kind != wordValue {
			c.PrependUOffsetTSlot(c.slot, c.offsets[c.slot], 0)
		}
	}
	return c.pass
}

// fail makes err, unless nil, the result of reading.
func (c *codec) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// vtable returns the place of the current field in the vtable.
func (c *codec) vtable() flatbuffers.VOffsetT { return flatbuffers.VOffsetT(4 + 2*c.slot) }

// offset returns the place of the current field in the table, 0 if it is absent.
func (c *codec) offset() flatbuffers.UOffsetT {
	return flatbuffers.UOffsetT(c.table.Offset(c.vtable()))
}

// refuse visits a field without a place in the graph, which must be zero or empty.
func (c *codec) refuse(name string, k kind) { c.next(field{name: name, kind: k, refuse: true}) }

// ignore visits a field that is neither written nor read.
func (c *codec) ignore(name string, k kind) { c.next(field{name: name, kind: k}) }

func (c *codec) flag(name string, p *bool, def bool) {
	switch c.next(field{name: name, kind: byteValue}) {
	case writingTable:
		c.PrependBoolSlot(c.slot, *p, def)
	case reading:
		*p = c.table.GetBoolSlot(c.vtable(), def)
	}
}

func (c *codec) float(name string, p *float32) {
	switch c.next(field{name: name, kind: wordValue}) {
	case writingTable:
		c.PrependFloat32Slot(c.slot, *p, 0)
	case reading:
		*p = c.table.GetFloat32Slot(c.vtable(), 0)
	}
}

func (c *codec) string(name string, p *string) {
	switch c.next(field{name: name, kind: text}) {
	case writingLists:
		c.offsets[c.slot] = c.encoder.text(*p)
	case reading:
		if o := c.offset(); o != 0 {
			*p = string(c.table.ByteVector(o + c.table.Pos))
		}
	}
}

func octet[T ~int8](c *codec, name string, p *T, def T) {
	switch c.next(field{name: name, kind: byteValue}) {
	case writingTable:
		c.PrependInt8Slot(c.slot, int8(*p), int8(def))
	case reading:
		*p = T(c.table.GetInt8Slot(c.vtable(), int8(def)))
	}
}

func word[T ~int32 | ~uint32](c *codec, name string, p *T, def T) {
	switch c.next(field{name: name, kind: wordValue}) {
	case writingTable:
		c.PrependUint32Slot(c.slot, uint32(*p), uint32(def))
	case reading:
		*p = T(c.table.GetUint32Slot(c.vtable(), uint32(def)))
	}
}

// numbers visits a vector; an empty one is read as nil.
func numbers[T number](c *codec, name string, p *[]T) {
	var zero T
	size := binary.Size(zero)
	switch c.next(field{name: name, kind: bytes1 + kind(bits.TrailingZeros(uint(size)))}) {
	case writingLists:
		c.offsets[c.slot] = vector(c.encoder, *p)
	case reading:
		o := c.offset()
		if o == 0 || c.table.VectorLen(o) == 0 {
			return
		}
		*p = make([]T, c.table.VectorLen(o))
		if _, err := binary.Decode(c.table.Bytes[c.table.Vector(o):][:size*len(*p)], binary.LittleEndian, *p); err != nil {
			panic(fmt.Sprintf("internal error: %v", err)) // the bounds check has passed
		}
	}
}

// nested visits a table; one that is absent is read as nil.
func nested[P any, R interface {
	*P
	record
}](c *codec, name, of string, p *R) {
	f := field{name: name, kind: child}
	if c.pass == describing {
		f.of = describe(of, R(new(P)))
	}
	switch c.next(f) {
	case writingTables:
		if *p != nil {
			c.offsets[c.slot] = c.encoder.table(*p)
		}
	case reading:
		o := c.offset()
		if o == 0 {
			*p = nil
			return
		}
		if *p == nil {
			*p = new(P)
		}
		c.fail(read(flatbuffers.Table{Bytes: c.table.Bytes, Pos: c.table.Indirect(o + c.table.Pos)}, *p))
	}
}

// nestedList visits a vector of tables.
func nestedList[P any, R interface {
	*P
	record
}](c *codec, name, of string, p *[]P) {
	f := field{name: name, kind: children}
	if c.pass == describing {
		f.of = describe(of, R(new(P)))
	}
	switch c.next(f) {
	case writingTables:
		list := make([]flatbuffers.UOffsetT, len(*p))
		for i := range *p {
			list[i] = c.encoder.table(R(&(*p)[i]))
		}
		c.offsets[c.slot] = c.CreateVectorOfTables(list)
	case reading:
		*p = nil
		o := c.offset()
		if o == 0 {
			return
		}
		*p = make([]P, c.table.VectorLen(o))
		for i := range *p {
			at := c.table.Indirect(c.table.Vector(o) + 4*flatbuffers.UOffsetT(i))
			c.fail(read(flatbuffers.Table{Bytes: c.table.Bytes, Pos: at}, R(&(*p)[i])))
		}
	}
}
