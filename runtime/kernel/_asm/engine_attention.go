package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func attention() {
	c := newAttentionConstants()
	for _, isa := range []attentionISA{
		{name: "FMA", v: y, half: x, bytes: 32, lanes: 3, columns: 4},
		{name: "512", v: z, half: y, bytes: 64, lanes: 2, columns: 8},
	} {
		isa.product()
		isa.laneWeights(c)
		isa.laneSoftmax(c)
		for heads := 1; heads <= 3; heads++ {
			isa.quad(heads)
		}
		if isa.bytes == 32 {
			isa.rowWeights(c)
		}
	}
	rowSums()
	transpose(true)
	transpose(false)
}

// attentionISA is a width of vectors and the tile that fits into its registers: lanes vectors of queries, a power of two
// of columns.
type attentionISA struct {
	name                  string
	v, half               []reg.VecPhysical
	bytes, lanes, columns int
}

func (s attentionISA) wide() bool { return s.bytes == 64 }

// product sums products of all lanes with columns of tiles, ascending, fused: dst is [8*groups][lanes], x [n][lanes].
func (s attentionISA) product() {
	begin("laneProduct"+s.name, "(dst *float32, x *float32, tiles *float32, n int, groups int, stride int, scale float32, factors *float32)")
	dst, xs, tile, n, left, stride, factors := param("dst"), param("x"), param("tiles"), param("n"), param("groups"), param("stride"), param("factors")
	row := s.lanes * s.bytes
	// The next tile begins stride after this one's first column.
	SHLQ(U8(2), stride)
	SUBQ(U8(64), stride)
	for i := 8 / s.columns; i > 1; i /= 2 {
		SHLQ(U8(1), left)
	}
	index := GP64()
	XORQ(index, index)
	in, broadcast := s.v[s.lanes*s.columns:][:s.lanes], s.v[s.lanes*(s.columns+1):]
	acc := func(c, l int) reg.VecPhysical { return s.v[c*s.lanes+l] }
	Label("group")
	for c := range s.columns {
		for l := range s.lanes {
			zero(acc(c, l))
		}
	}
	px, pt, k := GP64(), GP64(), GP64()
	MOVQ(xs, px)
	MOVQ(tile, pt)
	MOVQ(n, k)
	TESTQ(k, k)
	JZ(LabelRef("summed"))
	Label("term")
	for l, r := range in {
		VMOVUPS(Mem{Base: px, Disp: l * s.bytes}, r)
	}
	for c := range s.columns {
		b := broadcast[c%min(len(broadcast), s.columns)]
		VBROADCASTSS(Mem{Base: pt, Disp: 4 * c}, b)
		for l, r := range in {
			VFMADD231PS(b, r, acc(c, l))
		}
	}
	ADDQ(Imm(uint64(row)), px)
	ADDQ(Imm(64), pt)
	DECQ(k)
	JNZ(LabelRef("term"))
	Label("summed")
	TESTQ(factors, factors)
	JZ(LabelRef("scaled"))
	for l, r := range in {
		VMOVUPS(Mem{Base: factors, Disp: l * s.bytes}, r)
	}
	for c := range s.columns {
		for l, r := range in {
			at := Mem{Base: dst, Disp: c*row + l*s.bytes}
			VMULPS(at, r, broadcast[0])
			VADDPS(broadcast[0], acc(c, l), acc(c, l))
			VMOVUPS(acc(c, l), at)
		}
	}
	JMP(LabelRef("next"))
	Label("scaled")
	VBROADCASTSS(NewParamAddr("scale", 48), in[0])
	for c := range s.columns {
		for l := range s.lanes {
			VMULPS(in[0], acc(c, l), acc(c, l))
			VMOVUPS(acc(c, l), Mem{Base: dst, Disp: c*row + l*s.bytes})
		}
	}
	Label("next")
	ADDQ(U32(uint32(s.columns*row)), dst)
	ADDQ(Imm(uint64(4*s.columns)), tile)
	INCQ(index)
	TESTQ(U32(uint32(16/s.columns-1)), index)
	JNZ(LabelRef("same"))
	ADDQ(stride, tile)
	Label("same")
	DECQ(left)
	JNZ(LabelRef("group"))
	end()
}

func zero(r reg.VecPhysical) {
	if r.Size() == 64 {
		VPXORD(r, r, r)
		return
	}
	VXORPS(r, r, r)
}

// quad sums products of rows of x with the columns of tiles in four sums, with two vectors of columns where the
// registers allow.
func (s attentionISA) quad(heads int) {
	begin(fmt.Sprintf("quadProduct%d%s", heads, s.name),
		"(dst *float32, x *float32, tiles *float32, n int, count int, stride int, dstStride int, xStride int, scale float32, factors *float32, next *float32)")
	tile, next, count, stride := param("tiles"), param("next"), param("count"), param("stride")
	dstStride, xStride := param("dstStride"), param("xStride")
	SHLQ(U8(2), stride)
	SHLQ(U8(2), dstStride)
	SHLQ(U8(2), xStride)
	dst, xs := newRows(param("dst"), dstStride, heads), newRows(param("x"), xStride, heads)
	// A vector of 512 bits is a tile's row, and two come from two tiles; two of 256 bits are one.
	vectors := 2
	if !s.wide() && heads > 1 {
		vectors = 1
	}
	group := func(name string, vectors int, at func(base reg.GPVirtual, v, disp int) Mem, out func(h, v int) Mem) {
		acc := func(h, v, l int) reg.VecPhysical { return s.v[(h*vectors+v)*4+l] }
		in, b := s.v[heads*vectors*4:][:vectors], s.v[heads*vectors*4+vectors]
		for i := range heads * vectors * 4 {
			zero(s.v[i])
		}
		row, quads, rest := GP64(), GP64(), GP64()
		px := rows{base: GP64(), stride: xStride}
		MOVQ(xs.base, px.base)
		MOVQ(tile, row)
		Load(Param("n"), quads)
		MOVQ(quads, rest)
		step := func(l, i int) {
			for v := range vectors {
				VMOVUPS(at(row, v, 64*i), in[v])
			}
			for v := 0; v < vectors*s.bytes; v += 64 {
				PREFETCHT0(Mem{Base: next, Disp: (i*vectors*s.bytes + v)})
			}
			for h := range heads {
				VBROADCASTSS(px.at(h, 4*i), b)
				for v := range vectors {
					VFMADD231PS(b, in[v], acc(h, v, l))
				}
			}
		}
		SHRQ(U8(2), quads)
		JZ(LabelRef(name + "quads"))
		Label(name + "loop")
		for l := range 4 {
			step(l, l)
		}
		ADDQ(Imm(16), px.base)
		ADDQ(U32(256), row)
		ADDQ(U32(uint32(4*vectors*s.bytes)), next)
		DECQ(quads)
		JNZ(LabelRef(name + "loop"))
		Label(name + "quads")
		for h := range heads {
			for v := range vectors {
				VADDPS(acc(h, v, 2), acc(h, v, 0), acc(h, v, 0))
				VADDPS(acc(h, v, 3), acc(h, v, 1), acc(h, v, 1))
				VADDPS(acc(h, v, 1), acc(h, v, 0), acc(h, v, 0))
			}
		}
		ANDQ(Imm(3), rest)
		JZ(LabelRef(name + "summed"))
		Label(name + "rest")
		step(0, 0)
		ADDQ(Imm(4), px.base)
		ADDQ(Imm(64), row)
		DECQ(rest)
		JNZ(LabelRef(name + "rest"))
		Label(name + "summed")
		factors := param("factors")
		TESTQ(factors, factors)
		JZ(LabelRef(name + "scaled"))
		for h := range heads {
			VBROADCASTSS(Mem{Base: factors, Disp: 4 * h}, b)
			for v := range vectors {
				VMULPS(out(h, v), b, in[0])
				VADDPS(in[0], acc(h, v, 0), acc(h, v, 0))
				VMOVUPS(acc(h, v, 0), out(h, v))
			}
		}
		JMP(LabelRef(name + "done"))
		Label(name + "scaled")
		VBROADCASTSS(NewParamAddr("scale", 64), b)
		for h := range heads {
			for v := range vectors {
				VMULPS(b, acc(h, v, 0), acc(h, v, 0))
				VMOVUPS(acc(h, v, 0), out(h, v))
			}
		}
		Label(name + "done")
	}
	within := func(base reg.GPVirtual, v, disp int) Mem { return Mem{Base: base, Disp: disp + v*s.bytes} }
	inDst := func(h, v int) Mem { return dst.at(h, v*s.bytes) }
	if s.wide() {
		Label("two")
		CMPQ(count, Imm(2))
		JLT(LabelRef("one"))
		group("two", 2, func(base reg.GPVirtual, v, disp int) Mem {
			m := Mem{Base: base, Disp: disp}
			if v == 1 {
				m.Index, m.Scale = stride, 1
			}
			return m
		}, inDst)
		ADDQ(U32(128), dst.base)
		LEAQ(Mem{Base: tile, Index: stride, Scale: 2}, tile)
		SUBQ(Imm(2), count)
		JMP(LabelRef("two"))
		Label("one")
		TESTQ(count, count)
		JZ(LabelRef("end"))
		group("one", 1, within, inDst)
		Label("end")
		end()
		return
	}
	Label("tile")
	for v := 0; v < 2; v += vectors {
		group(fmt.Sprintf("half%d", v), vectors, within, inDst)
		ADDQ(Imm(uint64(32*vectors)), dst.base)
		ADDQ(Imm(uint64(32*vectors)), tile)
	}
	SUBQ(Imm(64), tile)
	ADDQ(stride, tile)
	DECQ(count)
	JNZ(LabelRef("tile"))
	end()
}

// transpose moves eight rows of 4*groups elements to columns that lie stride elements apart, or back. Row r begins at
// element offsets[r].
func transpose(gather bool) {
	name, signature, rowsAt, columnsAt := "scatterColumnsAVX2", "(dst *float32, src *float32, offsets *[8]int, stride int, groups int)", "dst", "src"
	if gather {
		name, rowsAt, columnsAt = "gatherColumnsAVX2", "src", "dst"
	}
	begin(name, signature)
	base, offsets, stride, groups := param(rowsAt), param("offsets"), param("stride"), param("groups")
	var row [8]reg.GPVirtual
	for r := range row {
		row[r] = GP64()
		MOVQ(Mem{Base: offsets, Disp: 8 * r}, row[r])
		LEAQ(Mem{Base: base, Index: row[r], Scale: 4}, row[r])
	}
	SHLQ(U8(2), stride)
	columns := newRows(param(columnsAt), stride, 4)
	in, mid, out := y[0:4], y[4:8], y[8:12]
	Label("loop")
	if gather {
		for r := range in {
			VMOVUPS(Mem{Base: row[r]}, x[r])
			VINSERTF128(Imm(1), Mem{Base: row[r+4]}, in[r], in[r])
		}
	} else {
		for c := range in {
			VMOVUPS(columns.at(c, 0), in[c])
		}
	}
	for i := range 2 {
		VUNPCKLPS(in[2*i+1], in[2*i], mid[2*i])
		VUNPCKHPS(in[2*i+1], in[2*i], mid[2*i+1])
	}
	for i := range 2 {
		VUNPCKLPD(mid[2+i], mid[i], out[2*i])
		VUNPCKHPD(mid[2+i], mid[i], out[2*i+1])
	}
	if gather {
		for c := range out {
			VMOVUPS(out[c], columns.at(c, 0))
		}
	} else {
		for r := range out {
			VMOVUPS(x[8+r], Mem{Base: row[r]})
			VEXTRACTF128(Imm(1), out[r], Mem{Base: row[r+4]})
		}
	}
	for _, r := range row {
		ADDQ(Imm(16), r)
	}
	LEAQ(Mem{Base: columns.base, Index: stride, Scale: 4}, columns.base)
	DECQ(groups)
	JNZ(LabelRef("loop"))
	end()
}
