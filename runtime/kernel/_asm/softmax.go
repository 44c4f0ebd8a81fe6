package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// softmax emits what computes with Exp of package kernel: the same operations in the same order. Lengths are multiples of
// eight and not 0, and sums have eight lanes of float64.
func softmax() {
	c := newExp64()
	for _, v := range []vectors{avx2, avx512} {
		c.sumExp(v)
		c.softmaxExp(v)
		c.divergence(v)
		c.silu(v)
		exactScale(v)
	}
}

// exp64 holds the constants of Exp.
type exp64 struct {
	lowest, cut, half, one, log2e, ln2Hi, ln2Lo, infinity, minus, plus Mem
	terms                                                              []Mem
	bias                                                               Mem
}

func newExp64() *exp64 {
	double := func(name string, v float64) Mem {
		b := math.Float64bits(v)
		m := GLOBL(name, RODATA|NOPTR)
		for i := range 4 {
			DATA(8*i, U64(b))
		}
		return m
	}
	const ln2Hi = 0x1.62e42feep-1
	c := &exp64{
		lowest: double("expLowest", -700), cut: double("expCut", -60), half: double("expHalf", 0.5), one: double("expOne", 1),
		log2e: double("expLog2E", math.Log2E), ln2Hi: double("expLn2Hi", ln2Hi), ln2Lo: double("expLn2Lo", math.Ln2-ln2Hi),
		infinity: double("expInfinity", math.Inf(1)), minus: double("expMinus", -700), plus: double("expPlus", 700),
		bias: words("expBias", repeat(1023, 4)...),
	}
	for i, v := range []float64{
		1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
		1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2,
	} {
		c.terms = append(c.terms, double("expTerm"+string(rune('a'+i)), v))
	}
	return c
}

// doubles are registers of float64 that compute together: n of v.
type doubles struct {
	v vectors
	n int
}

// Registers of the i-th: arg becomes what rounding took from r, square is r*r, and exp and odd are the two halves of the
// polynomial.
func (d doubles) arg(i int) reg.VecPhysical    { return d.v.reg[6*i] }
func (d doubles) k(i int) reg.VecPhysical      { return d.v.reg[6*i+1] }
func (d doubles) r(i int) reg.VecPhysical      { return d.v.reg[6*i+2] }
func (d doubles) square(i int) reg.VecPhysical { return d.v.reg[6*i+3] }
func (d doubles) odd(i int) reg.VecPhysical    { return d.v.reg[6*i+4] }
func (d doubles) exp(i int) reg.VecPhysical    { return d.v.reg[d.p(i)] }

// p is the number of the register exp.
func (d doubles) p(i int) int { return 6*i + 5 }

// bytes of float32 for one register.
func (d doubles) bytes() int { return 2 * d.v.lanes }

func (d doubles) at(p reg.GPVirtual, i int) Mem { return Mem{Base: p, Disp: i * d.bytes()} }

func (d doubles) all(f func(i int)) {
	for i := range d.n {
		f(i)
	}
}

// doubleLoops walks over n float32: with 512-bit registers 32 and then eight at a time, otherwise eight.
func doubleLoops(v vectors, n reg.GPVirtual, pointers []reg.GPVirtual, body func(d doubles)) {
	sizes := []doubles{{v, 2}}
	if v.lanes == 16 {
		sizes = []doubles{{v, 4}, {v, 1}}
	}
	for _, d := range sizes {
		loop := "loop" + string(rune('0'+d.n))
		size := d.n * v.lanes / 2
		Label(loop)
		CMPQ(n, U32(size))
		JLT(LabelRef(loop + "done"))
		body(d)
		for _, p := range pointers {
			ADDQ(U32(4*size), p)
		}
		SUBQ(U32(size), n)
		JMP(LabelRef(loop))
		Label(loop + "done")
	}
}

// Registers that loops share, behind those of doubles.
const (
	regAcc = 12 // two with 256-bit registers
	regOne = 14 // first and second number of a kernel
	regTwo = 15
)

func shared(v vectors, i int) reg.VecPhysical {
	if v.lanes == 16 {
		i += 12
	}
	return v.reg[i]
}

// constant is an operand that holds c in all lanes.
func (d doubles) constant(c Mem) Op {
	if d.v.lanes == 16 {
		VBROADCASTSD(c, z[31])
		return z[31]
	}
	return c
}

// termsAbove computes terms of exponentials of the arguments that load brings, 0 for arguments below the limit.
func (c *exp64) termsAbove(d doubles, limit Mem, load, term func(i int)) {
	d.all(load)
	if d.v.lanes == 16 {
		o := d.constant(limit)
		d.all(func(i int) { VCMPPD(U8(21), o, d.arg(i), k[1+i]) })
		c.exponentials(d)
		d.all(term)
		d.all(func(i int) { VMOVAPD_Z(d.exp(i), k[1+i], d.exp(i)) })
		return
	}
	// There is no register to keep a mask in.
	c.exponentials(d)
	d.all(term)
	d.all(load)
	d.all(func(i int) { VCMPPD(U8(21), limit, d.arg(i), d.square(i)) })
	d.all(func(i int) { VANDPD(d.square(i), d.exp(i), d.exp(i)) })
}

// exponentials turns the arguments, between -700 and 700 or of no interest, into exponentials.
func (c *exp64) exponentials(d doubles) {
	o := d.constant(c.log2e)
	d.all(func(i int) { VMULPD(o, d.arg(i), d.k(i)) })
	o = d.constant(c.half)
	d.all(func(i int) { VADDPD(o, d.k(i), d.k(i)) })
	d.all(func(i int) { // down
		if d.v.lanes == 16 {
			VRNDSCALEPD(U8(9), d.k(i), d.k(i))
		} else {
			VROUNDPD(U8(9), d.k(i), d.k(i))
		}
	})
	o = d.constant(c.ln2Hi) // an exact product, so that fusing changes nothing
	d.all(func(i int) { VFNMADD231PD(o, d.k(i), d.arg(i)) })
	o = d.constant(c.ln2Lo)
	d.all(func(i int) { VMULPD(o, d.k(i), d.exp(i)) })
	d.all(func(i int) { VSUBPD(d.exp(i), d.arg(i), d.r(i)) })
	d.all(func(i int) { VMULPD(d.r(i), d.r(i), d.square(i)) })
	d.all(func(i int) { VSUBPD(d.r(i), d.arg(i), d.arg(i)) })
	d.all(func(i int) { VSUBPD(d.exp(i), d.arg(i), d.arg(i)) })
	o = d.constant(c.terms[0])
	d.all(func(i int) { VMULPD(o, d.square(i), d.odd(i)) })
	o = d.constant(c.terms[1])
	d.all(func(i int) { VMULPD(o, d.square(i), d.exp(i)) })
	for j := 2; j < len(c.terms); j += 2 {
		if j > 2 {
			d.all(func(i int) { VMULPD(d.square(i), d.odd(i), d.odd(i)) })
			d.all(func(i int) { VMULPD(d.square(i), d.exp(i), d.exp(i)) })
		}
		o = d.constant(c.terms[j])
		d.all(func(i int) { VADDPD(o, d.odd(i), d.odd(i)) })
		o = d.constant(c.terms[j+1])
		d.all(func(i int) { VADDPD(o, d.exp(i), d.exp(i)) })
	}
	d.all(func(i int) { VMULPD(d.r(i), d.odd(i), d.odd(i)) })
	d.all(func(i int) { VADDPD(d.odd(i), d.exp(i), d.exp(i)) })
	d.all(func(i int) { VMULPD(d.square(i), d.exp(i), d.exp(i)) })
	d.all(func(i int) { VADDPD(d.arg(i), d.exp(i), d.exp(i)) })
	d.all(func(i int) { VADDPD(d.exp(i), d.r(i), d.exp(i)) })
	o = d.constant(c.one)
	d.all(func(i int) { VADDPD(o, d.exp(i), d.exp(i)) })
	d.all(func(i int) {
		if d.v.lanes == 16 {
			VSCALEFPD(d.k(i), d.exp(i), d.exp(i))
			return
		}
		low := x[6*i+1]
		VCVTPD2DQY(d.k(i), low)
		VPADDD(c.bias, low, low)
		VPMOVZXDQ(low, d.k(i))
		VPSLLQ(U8(52), d.k(i), d.k(i))
		VMULPD(d.k(i), d.exp(i), d.exp(i))
	})
}

// lanes are the sums of eight lanes in memory.
type lanes struct {
	v vectors
	p reg.GPVirtual
}

func (l lanes) load() {
	for i := range 16 / l.v.lanes {
		VMOVUPD(Mem{Base: l.p, Disp: i * l.v.bytes()}, shared(l.v, regAcc+i))
	}
}

// add adds register i of a step.
func (l lanes) add(i int, r reg.VecPhysical) {
	acc := shared(l.v, regAcc+i%(16/l.v.lanes))
	VADDPD(r, acc, acc)
}

func (l lanes) store() {
	for i := range 16 / l.v.lanes {
		VMOVUPD(shared(l.v, regAcc+i), Mem{Base: l.p, Disp: i * l.v.bytes()})
	}
}

// sumExp adds exp((x-top)*scale).
func (c *exp64) sumExp(v vectors) {
	begin("sumExp"+v.tier, "(lanes *float64, x *float32, n int, top float64, scale float64)")
	sums, px, n := lanes{v, param("lanes")}, param("x"), param("n")
	top, scale := shared(v, regOne), shared(v, regTwo)
	VBROADCASTSD(NewParamAddr("top", 24), top)
	VBROADCASTSD(NewParamAddr("scale", 32), scale)
	sums.load()
	doubleLoops(v, n, []reg.GPVirtual{px}, func(d doubles) {
		c.termsAbove(d, c.lowest, func(i int) {
			VCVTPS2PD(d.at(px, i), d.arg(i))
			VSUBPD(top, d.arg(i), d.arg(i))
			VMULPD(scale, d.arg(i), d.arg(i))
		}, func(i int) {})
		d.all(func(i int) { sums.add(i, d.exp(i)) })
	})
	sums.store()
	end()
}

// softmaxExp replaces x by exp(x-top) in float32 and adds that.
func (c *exp64) softmaxExp(v vectors) {
	begin("softmaxExp"+v.tier, "(lanes *float64, x *float32, n int, top float64)")
	sums, px, n := lanes{v, param("lanes")}, param("x"), param("n")
	top := shared(v, regOne)
	VBROADCASTSD(NewParamAddr("top", 24), top)
	sums.load()
	doubleLoops(v, n, []reg.GPVirtual{px}, func(d doubles) {
		c.termsAbove(d, c.lowest, func(i int) {
			VCVTPS2PD(d.at(px, i), d.arg(i))
			VSUBPD(top, d.arg(i), d.arg(i))
		}, func(i int) {})
		d.all(func(i int) { narrow(v, d.p(i)) })
		d.all(func(i int) { storeNarrow(v, d.p(i), d.at(px, i)) })
		d.all(func(i int) {
			if v.lanes == 16 {
				VCVTPS2PD(half.reg[d.p(i)], d.exp(i))
			} else {
				VCVTPS2PD(x[d.p(i)], d.exp(i))
			}
		})
		d.all(func(i int) { sums.add(i, d.exp(i)) })
	})
	sums.store()
	end()
}

// divergence adds exp(p-norm)*((p-q)+shift), without the terms where p-norm is below the cut.
func (c *exp64) divergence(v vectors) {
	begin("divergence"+v.tier, "(lanes *float64, p *float32, q *float32, n int, norm float64, shift float64)")
	sums, pp, pq, n := lanes{v, param("lanes")}, param("p"), param("q"), param("n")
	norm, shift := shared(v, regOne), shared(v, regTwo)
	VBROADCASTSD(NewParamAddr("norm", 32), norm)
	VBROADCASTSD(NewParamAddr("shift", 40), shift)
	sums.load()
	doubleLoops(v, n, []reg.GPVirtual{pp, pq}, func(d doubles) {
		c.termsAbove(d, c.cut, func(i int) {
			VCVTPS2PD(d.at(pp, i), d.arg(i))
			VSUBPD(norm, d.arg(i), d.arg(i))
		}, func(i int) {
			VCVTPS2PD(d.at(pp, i), d.arg(i))
			VCVTPS2PD(d.at(pq, i), d.odd(i))
			VSUBPD(d.odd(i), d.arg(i), d.odd(i))
			VADDPD(shift, d.odd(i), d.odd(i))
			VMULPD(d.odd(i), d.exp(i), d.exp(i))
		})
		d.all(func(i int) { sums.add(i, d.exp(i)) })
	})
	sums.store()
	end()
}

// silu writes x / (1 + exp(-x)).
func (c *exp64) silu(v vectors) {
	begin("exactSiLU"+v.tier, "(dst *float32, x *float32, n int)")
	dst, px, n := param("dst"), param("x"), param("n")
	zero, one, infinity := shared(v, regAcc), shared(v, regOne), shared(v, regTwo)
	VBROADCASTSD(c.one, one)
	VBROADCASTSD(c.infinity, infinity)
	if v.lanes == 16 {
		VPXORQ(zero, zero, zero)
	} else {
		VXORPD(zero, zero, zero)
	}
	doubleLoops(v, n, []reg.GPVirtual{dst, px}, func(d doubles) {
		d.all(func(i int) { VCVTPS2PD(d.at(px, i), d.arg(i)) })
		d.all(func(i int) { VSUBPD(d.arg(i), zero, d.arg(i)) })
		c.exponentials(d)
		// Beyond 700 the exponential is too large, or too small, to change the quotient.
		d.all(func(i int) { VCVTPS2PD(d.at(px, i), d.arg(i)) })
		for _, far := range []struct {
			limit     Mem
			predicate uint8
			value     reg.VecPhysical
		}{{c.minus, 17, infinity}, {c.plus, 30, zero}} { // less, greater
			o := d.constant(far.limit)
			d.all(func(i int) {
				if v.lanes == 16 {
					VCMPPD(U8(far.predicate), o, d.arg(i), k[1+i])
					VMOVAPD(far.value, k[1+i], d.exp(i))
				} else {
					VCMPPD(U8(far.predicate), o, d.arg(i), d.square(i))
					VBLENDVPD(d.square(i), far.value, d.exp(i), d.exp(i))
				}
			})
		}
		d.all(func(i int) { VADDPD(one, d.exp(i), d.exp(i)) })
		d.all(func(i int) { VDIVPD(d.exp(i), d.arg(i), d.exp(i)) })
		d.all(func(i int) { narrow(v, d.p(i)) })
		d.all(func(i int) { storeNarrow(v, d.p(i), d.at(dst, i)) })
	})
	end()
}

// exactScale multiplies in float64.
func exactScale(v vectors) {
	begin("exactScale"+v.tier, "(x *float32, n int, scale float64)")
	px, n := param("x"), param("n")
	factor := shared(v, regOne)
	VBROADCASTSD(NewParamAddr("scale", 16), factor)
	doubleLoops(v, n, []reg.GPVirtual{px}, func(d doubles) {
		d.all(func(i int) { VCVTPS2PD(d.at(px, i), d.exp(i)) })
		d.all(func(i int) { VMULPD(factor, d.exp(i), d.exp(i)) })
		d.all(func(i int) { narrow(v, d.p(i)) })
		d.all(func(i int) { storeNarrow(v, d.p(i), d.at(px, i)) })
	})
	end()
}
