package engine

import (
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
	"sync"
)

// formatFloat writes a float64 as the engine's JSON library does: digits by Grisu2 (F. Loitsch, Printing
// Floating-Point Numbers Quickly and Accurately with Integers, 2010), which are sometimes longer than those of strconv,
// always with a fraction or an exponent.
func formatFloat(f float64) string {
	sign := ""
	if math.Signbit(f) {
		sign, f = "-", -f
	}
	if f == 0 {
		return sign + "0.0"
	}
	digits, exponent := grisu2(f)
	n := len(digits)
	point := n + exponent // the place of the decimal point in the digits
	switch {
	case exponent >= 0 && point <= 21:
		return sign + digits + strings.Repeat("0", exponent) + ".0"
	case point > 0 && point <= 21:
		return sign + digits[:point] + "." + digits[point:]
	case point > -6 && point <= 0:
		return sign + "0." + strings.Repeat("0", -point) + digits
	case n == 1:
		return sign + digits + "e" + strconv.Itoa(point-1)
	}
	return sign + digits[:1] + "." + digits[1:] + "e" + strconv.Itoa(point-1)
}

// diy is the number f * 2^e.
type diy struct {
	f uint64
	e int
}

// times is the product, rounded to 64 bits.
func (a diy) times(b diy) diy {
	high, low := bits.Mul64(a.f, b.f)
	return diy{high + low>>63, a.e + b.e + 64}
}

// normal shifts the highest bit to the top.
func (a diy) normal() diy {
	n := bits.LeadingZeros64(a.f)
	return diy{a.f << n, a.e - n}
}

// powers are 10^-348, 10^-340, ... 10^340, rounded to 64 bits.
var powers = sync.OnceValue(func() []diy {
	list := make([]diy, 87)
	for i := range list {
		n := int64(-348 + 8*i)
		p := new(big.Float).SetPrec(64).SetMode(big.ToNearestEven)
		ten := new(big.Float).SetPrec(2000).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(max(n, -n)), nil))
		if n < 0 {
			ten.Quo(new(big.Float).SetPrec(2000).SetInt64(1), ten)
		}
		p.Set(ten)
		mantissa := new(big.Float)
		e := p.MantExp(mantissa)
		f, _ := mantissa.SetMantExp(mantissa, 64).Uint64()
		list[i] = diy{f, e - 64}
	}
	return list
})

// grisu2 makes digits and the power of ten of the last one, of a positive number.
func grisu2(f float64) (string, int) {
	b := math.Float64bits(f)
	v := diy{b & (1<<52 - 1), int(b>>52) - 1075}
	if b>>52 == 0 {
		v.e++
	} else {
		v.f |= 1 << 52
	}
	above := diy{v.f<<1 + 1, v.e - 1}.normal()
	below := diy{v.f<<1 - 1, v.e - 1}
	if v.f == 1<<52 {
		below = diy{v.f<<2 - 1, v.e - 2}
	}
	below = diy{below.f << (below.e - above.e), above.e}

	k := math.Ceil(float64(float64(-61-above.e)*0.30102999566398114) + 347)
	index := int(k)>>3 + 1
	power := powers()[index]
	w, high, low := v.normal().times(power), above.times(power), below.times(power)
	high.f--
	low.f++
	return generate(high, high.f-low.f, high.f-w.f, 348-8*index)
}

// generate makes the digits of a number that is at most delta below high; the wanted one is distance below it.
func generate(high diy, delta, distance uint64, exponent int) (string, int) {
	shift := uint(-high.e)
	one := uint64(1) << shift
	whole, part := high.f>>shift, high.f&(one-1)
	var digits []byte
	for i := len(strconv.FormatUint(whole, 10)) - 1; i >= 0; i-- {
		ten := pow10(i)
		if d := whole / ten; d > 0 || digits != nil {
			digits = append(digits, '0'+byte(d))
		}
		whole %= ten
		if rest := whole<<shift + part; rest <= delta {
			round(digits, delta, rest, ten<<shift, distance)
			return string(digits), exponent + i
		}
	}
	for i := 1; ; i++ {
		part *= 10
		delta *= 10
		if d := part >> shift; d > 0 || digits != nil {
			digits = append(digits, '0'+byte(d))
		}
		part &= one - 1
		if part < delta {
			// From the ninth digit of the fraction on the library takes the distance for 0.
			scaled := uint64(0)
			if i < 9 {
				scaled = distance * pow10(i)
			}
			round(digits, delta, part, one, scaled)
			return string(digits), exponent - i
		}
	}
}

func pow10(n int) uint64 {
	p := uint64(1)
	for range n {
		p *= 10
	}
	return p
}

// round lowers the last digit while that brings it closer to the wanted number.
func round(digits []byte, delta, rest, unit, distance uint64) {
	for rest < distance && delta-rest >= unit && (rest+unit < distance || distance-rest > rest+unit-distance) {
		digits[len(digits)-1]--
		rest += unit
	}
}
