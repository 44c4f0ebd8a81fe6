// Program _asm writes the amd64 assembly of package kernel, and its Go declarations:
// go run . -kernel gemm -out ../gemm_amd64.s -go ../gemm_asm_amd64.go. See ../generate.go.
package main

import (
	"flag"
	"fmt"
	"os"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/llmexport/llmexport/runtime/kernel/_asm/declare"
)

var kernels = map[string]func(){
	"attend":   attention,
	"codes":    codes,
	"convert":  convert,
	"elements": elements,
	"gemm":     gemm,
	"grid":     gridSearch,
	"half":     halves,
	"int8":     int8,
	"peak":     peak,
	"rtn":      rtn,
	"softmax":  softmax,
}

func main() {
	name := flag.String("kernel", "", "the file to write: one of the table of kernels")
	file := flag.String("go", "", "the Go file to write")
	flag.Parse()
	kernel, ok := kernels[*name]
	if !ok {
		fmt.Fprintf(os.Stderr, "unknown kernel %q\n", *name)
		os.Exit(2)
	}
	ConstraintExpr("!purego")
	kernel()
	Generate()
	if err := declare.Write(*file, "_asm -kernel "+*name, functions); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// functions are those begun so far.
var functions []declare.Function

var (
	x = []reg.VecPhysical{reg.X0, reg.X1, reg.X2, reg.X3, reg.X4, reg.X5, reg.X6, reg.X7, reg.X8, reg.X9, reg.X10, reg.X11, reg.X12, reg.X13, reg.X14, reg.X15}
	y = []reg.VecPhysical{reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7, reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15}
	z = []reg.VecPhysical{reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
		reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23, reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31}
)

// begin starts a function that neither grows the stack nor keeps its pointers.
func begin(name, signature string) {
	functions = append(functions, declare.Function{Name: name, Signature: signature})
	TEXT(name, NOSPLIT, "func"+signature)
}

func end() {
	VZEROUPPER()
	RET()
}

// param loads a parameter into a register.
func param(name string) reg.GPVirtual {
	r := GP64()
	Load(Param(name), r)
	return r
}

// rows addresses up to eight rows that lie stride bytes apart.
type rows struct{ base, base4, stride, stride3 reg.GPVirtual }

func newRows(base, stride reg.GPVirtual, n int) rows {
	r := rows{base: base, stride: stride}
	if n > 3 {
		r.stride3 = GP64()
		LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, r.stride3)
	}
	if n > 4 {
		r.base4 = GP64()
		LEAQ(Mem{Base: base, Index: stride, Scale: 4}, r.base4)
	}
	return r
}

// at is byte disp of row i.
func (r rows) at(i, disp int) Mem {
	m := Mem{Base: r.base, Disp: disp}
	if i >= 4 {
		m.Base = r.base4
	}
	switch i % 4 {
	case 1, 2:
		m.Index, m.Scale = r.stride, uint8(i%4)
	case 3:
		m.Index, m.Scale = r.stride3, 1
	}
	return m
}

// advance moves all rows by n bytes.
func (r rows) advance(n int) {
	ADDQ(Imm(uint64(n)), r.base)
	if r.base4 != nil {
		ADDQ(Imm(uint64(n)), r.base4)
	}
}

// words is a constant of 32 bytes or more.
func words(name string, values ...uint32) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i, v := range values {
		DATA(4*i, U32(v))
	}
	return m
}

func repeat(v uint32, n int) []uint32 {
	s := make([]uint32, n)
	for i := range s {
		s[i] = v
	}
	return s
}
