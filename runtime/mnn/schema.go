package mnn

// kind is the type of a slot of a table, as far as a bounds check needs it.
type kind uint8

const (
	byteValue kind = iota // a bool, a byte or a union's type, in the table itself
	wordValue             // an int, uint or float, in the table itself
	text                  // this and all others are stored elsewhere, and the table has an offset
	bytes1                // vectors of elements of 1, 2, 4 and 8 bytes
	bytes2
	bytes4
	bytes8
	texts
	child    // a table
	children // a vector of tables
	param    // a union; the slot before it is its type
)

// layout describes a table: its fields in the order of their slots, with the names of mnn.fbs.
type layout struct {
	name   string
	fields []field
}

type field struct {
	name string
	kind kind
	of   *layout // of child and children
	// refuse marks an unsupported field, which must be zero or empty.
	refuse bool
}

var netLayout = &layout{"Net", []field{
	{name: "bizCode", kind: text},
	{name: "extraTensorDescribe", kind: bytes4, refuse: true},
	{name: "extraInfo", kind: child, of: extraInfoLayout},
	{name: "oplists", kind: children, of: opLayout},
	{name: "outputName", kind: texts},
	{name: "preferForwardType", kind: byteValue},
	{name: "sourceType", kind: byteValue},
	{name: "tensorName", kind: texts},
	{name: "tensorNumber", kind: wordValue},
	{name: "usage", kind: byteValue, refuse: true},
	{name: "subgraphs", kind: children, of: subgraphLayout},
	{name: "mnn_uuid", kind: text},
}}

var subgraphLayout = &layout{"SubGraphProto", []field{
	{name: "name", kind: text},
	{name: "inputs", kind: bytes4},
	{name: "outputs", kind: bytes4},
	{name: "tensors", kind: texts},
	{name: "nodes", kind: children, of: opLayout},
	{name: "extraTensorDescribe", kind: bytes4, refuse: true},
}}

var extraInfoLayout = &layout{"ExtraInfo", []field{
	{name: "buffer", kind: bytes1},
	{name: "name", kind: text},
	{name: "version", kind: text},
}}

var opLayout = &layout{"Op", []field{
	{name: "inputIndexes", kind: bytes4},
	{name: "main_type", kind: byteValue},
	{name: "main", kind: param},
	{name: "name", kind: text},
	{name: "outputIndexes", kind: bytes4},
	{name: "type", kind: wordValue},
	{name: "defaultDimentionFormat", kind: byteValue},
	{name: "externalPath", kind: text, refuse: true},
}}
