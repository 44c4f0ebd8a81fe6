package mnn

import "fmt"

// Format is the order in which a tensor is stored in memory.
type Format int8

// The memory layouts. NC4HW4 interleaves four channels of a position.
const (
	NCHW   Format = 0
	NHWC   Format = 1
	NC4HW4 Format = 2
	NHWC4  Format = 3
	// FormatUnknown is MNN's UNKNOWN.
	FormatUnknown Format = 4
)

// DimFormat is the layout that an op assumes (defaultDimentionFormat). It is not a [Format] because its zero
// value, which most ops have, is NHWC, the default of the file format.
type DimFormat int8

// The layouts that ops assume.
const (
	DimNHWC DimFormat = iota
	DimNCHW
	DimNC4HW4
)

var dimFormats = [...]Format{DimNHWC: NHWC, DimNCHW: NCHW, DimNC4HW4: NC4HW4}

// Format returns the layout with the same name.
func (f DimFormat) Format() Format {
	if f < 0 || int(f) >= len(dimFormats) {
		return FormatUnknown
	}
	return dimFormats[f]
}

// DataType is the type of the elements of a tensor of the graph.
type DataType int32

// The element types.
const (
	DTInvalid  DataType = 0
	DTFloat    DataType = 1
	DTDouble   DataType = 2
	DTInt32    DataType = 3
	DTUint8    DataType = 4
	DTInt16    DataType = 5
	DTInt8     DataType = 6
	DTString   DataType = 7
	DTInt64    DataType = 9
	DTBool     DataType = 10
	DTBFloat16 DataType = 14
	DTHalf     DataType = 19
)

// BinaryOp is an elementwise operation of two inputs.
type BinaryOp int32

// The elementwise operations of two inputs x and y. MulSilu is x*silu(y); RealDiv truncates integers toward zero.
const (
	BinaryAdd          BinaryOp = 0
	BinarySub          BinaryOp = 1
	BinaryMul          BinaryOp = 2
	BinaryDiv          BinaryOp = 3
	BinaryPow          BinaryOp = 6
	BinaryRealDiv      BinaryOp = 7
	BinaryMinimum      BinaryOp = 8
	BinaryMaximum      BinaryOp = 9
	BinaryGreater      BinaryOp = 10
	BinaryGreaterEqual BinaryOp = 11
	BinaryLess         BinaryOp = 12
	BinaryFloorDiv     BinaryOp = 13
	BinaryEqual        BinaryOp = 15
	BinaryLessEqual    BinaryOp = 16
	BinaryFloorMod     BinaryOp = 17
	BinaryMod          BinaryOp = 19
	BinaryNotEqual     BinaryOp = 22
	BinaryMulSilu      BinaryOp = 29
)

// UnaryOp is an elementwise operation.
type UnaryOp int32

// The elementwise operations. Gelu is the tanh form, GeluStandard the erf form.
const (
	UnaryAbs          UnaryOp = 0
	UnaryNeg          UnaryOp = 1
	UnarySquare       UnaryOp = 4
	UnarySqrt         UnaryOp = 5
	UnaryRsqrt        UnaryOp = 6
	UnaryExp          UnaryOp = 7
	UnaryLog          UnaryOp = 8
	UnarySin          UnaryOp = 9
	UnaryCos          UnaryOp = 10
	UnaryReciprocal   UnaryOp = 15
	UnaryLog1p        UnaryOp = 16
	UnaryExpm1        UnaryOp = 28
	UnarySigmoid      UnaryOp = 29
	UnaryTanh         UnaryOp = 30
	UnaryGelu         UnaryOp = 32
	UnaryGeluStandard UnaryOp = 33
	UnarySilu         UnaryOp = 34
)

// ReductionOp is the operation of a Reduction.
type ReductionOp int8

// The reductions in use.
const (
	ReduceSum     ReductionOp = 0
	ReduceMean    ReductionOp = 3
	ReduceMaximum ReductionOp = 4
)

func (f Format) String() string      { return name(formatNames, f, "MNN_DATA_FORMAT") }
func (f DimFormat) String() string   { return f.Format().String() }
func (t DataType) String() string    { return name(dataTypeNames, t, "DataType") }
func (o BinaryOp) String() string    { return name(binaryNames, o, "BinaryOpOperation") }
func (o UnaryOp) String() string     { return name(unaryNames, o, "UnaryOpOperation") }
func (o ReductionOp) String() string { return name(reductionNames, o, "ReductionType") }

// name returns the name of a value; unknown values print as, for example, "OpType(5)".
func name[T ~int8 | ~uint8 | ~int32](names map[T]string, v T, kind string) string {
	if s, ok := names[v]; ok {
		return s
	}
	return fmt.Sprintf("%s(%d)", kind, v)
}

var formatNames = map[Format]string{
	NCHW:          "NCHW",
	NHWC:          "NHWC",
	NC4HW4:        "NC4HW4",
	NHWC4:         "NHWC4",
	FormatUnknown: "UNKNOWN",
}

var dataTypeNames = map[DataType]string{
	DTInvalid:  "DT_INVALID",
	DTFloat:    "DT_FLOAT",
	DTDouble:   "DT_DOUBLE",
	DTInt32:    "DT_INT32",
	DTUint8:    "DT_UINT8",
	DTInt16:    "DT_INT16",
	DTInt8:     "DT_INT8",
	DTString:   "DT_STRING",
	DTInt64:    "DT_INT64",
	DTBool:     "DT_BOOL",
	DTBFloat16: "DT_BFLOAT16",
	DTHalf:     "DT_HALF",
}

var binaryNames = map[BinaryOp]string{
	BinaryAdd:          "ADD",
	BinarySub:          "SUB",
	BinaryMul:          "MUL",
	BinaryDiv:          "DIV",
	BinaryPow:          "POW",
	BinaryRealDiv:      "REALDIV",
	BinaryMinimum:      "MINIMUM",
	BinaryMaximum:      "MAXIMUM",
	BinaryGreater:      "GREATER",
	BinaryGreaterEqual: "GREATER_EQUAL",
	BinaryLess:         "LESS",
	BinaryFloorDiv:     "FLOORDIV",
	BinaryEqual:        "EQUAL",
	BinaryLessEqual:    "LESS_EQUAL",
	BinaryFloorMod:     "FLOORMOD",
	BinaryMod:          "MOD",
	BinaryNotEqual:     "NOTEQUAL",
	BinaryMulSilu:      "MUL_SILU",
}

var unaryNames = map[UnaryOp]string{
	UnaryAbs:          "ABS",
	UnaryNeg:          "NEG",
	UnarySquare:       "SQUARE",
	UnarySqrt:         "SQRT",
	UnaryRsqrt:        "RSQRT",
	UnaryExp:          "EXP",
	UnaryLog:          "LOG",
	UnarySin:          "SIN",
	UnaryCos:          "COS",
	UnaryReciprocal:   "RECIPROCAL",
	UnaryLog1p:        "LOG1P",
	UnaryExpm1:        "EXPM1",
	UnarySigmoid:      "SIGMOID",
	UnaryTanh:         "TANH",
	UnaryGelu:         "GELU",
	UnaryGeluStandard: "GELU_STANDARD",
	UnarySilu:         "SILU",
}

var reductionNames = map[ReductionOp]string{
	ReduceSum:     "SUM",
	ReduceMean:    "MEAN",
	ReduceMaximum: "MAXIMUM",
}
