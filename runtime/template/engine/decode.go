package engine

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxJSONDepth bounds nested lists and objects, which the engine reads on its stack.
const maxJSONDepth = 1000

// decoder reads JSON as the engine's library does: bytes of strings are not checked, keys may repeat, numbers are rounded
// as there, and the text ends at a zero byte.
type decoder struct {
	s     string
	at    int
	depth int
}

// decode reads one value. Invalid JSON, which the engine takes for null, is a tensor.ErrCorrupt.
func decode(s string) (*value, error) {
	d := &decoder{s: cString(s)}
	v, err := d.value()
	if err != nil {
		return nil, err
	}
	if d.blanks(); d.at < len(d.s) {
		return nil, d.wrong("text after the value")
	}
	return v, nil
}

func (d *decoder) wrong(what string) error {
	return fmt.Errorf("JSON, byte %d: %s: %w", d.at, what, tensor.ErrCorrupt)
}

func (d *decoder) blanks() {
	for d.at < len(d.s) && strings.IndexByte(blanks, d.s[d.at]) >= 0 {
		d.at++
	}
}

func (d *decoder) take(s string) bool {
	ok := strings.HasPrefix(d.s[d.at:], s)
	if ok {
		d.at += len(s)
	}
	return ok
}

func (d *decoder) value() (*value, error) {
	d.blanks()
	switch {
	case d.take("null"):
		return &value{}, nil
	case d.take("true"):
		return newBool(true), nil
	case d.take("false"):
		return newBool(false), nil
	case d.take(`"`):
		s, err := d.text()
		return newText(s), err
	case d.take("["):
		v := &value{kind: array}
		return v, d.elements("]", func() error {
			e, err := d.value()
			v.elements = append(v.elements, e)
			return err
		})
	case d.take("{"):
		v := newObject()
		return v, d.elements("}", func() error {
			d.blanks()
			if !d.take(`"`) {
				return d.wrong("a key is missing")
			}
			key, err := d.text()
			if err != nil {
				return err
			}
			if strings.IndexByte(key, 0) >= 0 {
				return fmt.Errorf("JSON: key %q holds a zero byte: %w", key, tensor.ErrUnsupported)
			}
			if d.blanks(); !d.take(":") {
				return d.wrong("a colon is missing")
			}
			e, err := d.value()
			v.members = append(v.members, member{key, e})
			return err
		})
	}
	return d.number()
}

// elements reads up to a bracket, with commas between elements.
func (d *decoder) elements(bracket string, element func() error) error {
	if d.depth++; d.depth > maxJSONDepth {
		return fmt.Errorf("JSON nested more than %d deep: %w", maxJSONDepth, tensor.ErrUnsupported)
	}
	defer func() { d.depth-- }()
	if d.blanks(); d.take(bracket) {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		d.blanks()
		if d.take(bracket) {
			return nil
		}
		if !d.take(",") {
			return d.wrong("a comma or bracket is missing")
		}
	}
}

// text reads a string after its opening quote.
func (d *decoder) text() (string, error) {
	var b strings.Builder
	for d.at < len(d.s) {
		c := d.s[d.at]
		d.at++
		switch {
		case c == '"':
			return b.String(), nil
		case c < 0x20:
			return "", d.wrong("a control character in a string")
		case c != '\\':
			b.WriteByte(c)
		case d.take("u"):
			if err := d.escape(&b); err != nil {
				return "", err
			}
		default:
			at := -1
			if d.at < len(d.s) {
				at = strings.IndexByte(`"\/bfnrt`, d.s[d.at])
			}
			if at < 0 {
				return "", d.wrong("an unknown escape")
			}
			d.at++
			b.WriteByte("\"\\/\b\f\n\r\t"[at])
		}
	}
	return "", d.wrong("a string that does not end")
}

// escape reads an escape after \u. The second half of a surrogate pair alone is encoded as it is.
func (d *decoder) escape(b *strings.Builder) error {
	c, err := d.hex()
	if err != nil {
		return err
	}
	if c >= 0xd800 && c <= 0xdbff {
		if !d.take(`\u`) {
			return d.wrong("half a surrogate pair")
		}
		low, err := d.hex()
		if err != nil {
			return err
		}
		if low < 0xdc00 || low > 0xdfff {
			return d.wrong("half a surrogate pair")
		}
		c = (c-0xd800)<<10 + low - 0xdc00 + 0x10000
	}
	if utf8.ValidRune(c) {
		b.WriteRune(c)
		return nil
	}
	_, err = b.Write([]byte{0xe0 | byte(c>>12), 0x80 | byte(c>>6)&0x3f, 0x80 | byte(c)&0x3f})
	return err
}

func (d *decoder) hex() (rune, error) {
	var c rune
	for range 4 {
		at := -1
		if d.at < len(d.s) {
			at = strings.IndexByte("0123456789abcdef", lower(d.s[d.at : d.at+1])[0])
		}
		if at < 0 {
			return 0, d.wrong("an escape without four digits")
		}
		c = c<<4 | rune(at)
		d.at++
	}
	return c, nil
}

func (d *decoder) digit() bool { return d.at < len(d.s) && isDigit(d.s[d.at]) }

// number reads a number. Digits are collected in an integer while it holds them, then in a float64; the decimal point
// is moved with one multiplication or division by a power of ten, so that the last bit may be wrong, as it is there.
func (d *decoder) number() (*value, error) {
	minus := d.take("-")
	if !d.digit() {
		return nil, d.wrong("no value")
	}
	limit := uint64(math.MaxUint64)
	if minus {
		limit = 1 << 63
	}
	var i uint64
	var f float64
	float := false
	digits := 0 // that count, but for the first
	if !d.take("0") {
		for first := true; d.digit(); first = false {
			c := uint64(d.s[d.at] - '0')
			switch {
			case !float && (i > limit/10 || i == limit/10 && c > limit%10):
				float, f = true, float64(i)
				fallthrough
			case float:
				f = float64(f*10) + float64(c)
			default:
				i = i*10 + c
				if !first {
					digits++
				}
			}
			d.at++
		}
	}
	power := 0
	if d.take(".") {
		if !d.digit() {
			return nil, d.wrong("a point without digits")
		}
		for ; !float && d.digit() && i <= 1<<53-1; d.at++ {
			i = i*10 + uint64(d.s[d.at]-'0')
			power--
			if i != 0 {
				digits++
			}
		}
		if !float {
			float, f = true, float64(i)
		}
		for ; d.digit(); d.at++ {
			if digits < 17 {
				f = float64(f*10) + float64(d.s[d.at]-'0')
				power--
				if f > 0 {
					digits++
				}
			}
		}
	}
	if d.take("e") || d.take("E") {
		if !float {
			float, f = true, float64(i)
		}
		exponent, err := d.exponent(power)
		if err != nil {
			return nil, err
		}
		power += exponent
	}
	if !float {
		switch {
		case minus:
			return newInt(-int64(i)), nil
		case i > math.MaxInt64:
			return &value{kind: number, form: unsigned, bits: i}, nil
		}
		return newInt(int64(i)), nil
	}
	if power < -308 {
		f, power = scale(f, -308), power+308
	}
	f = scale(f, power)
	if math.IsInf(f, 0) {
		return nil, d.wrong("a number that is too large")
	}
	if minus {
		f = -f
	}
	return newFloat(f), nil
}

// exponent reads an exponent after the e. A positive one must not make the number too large; the digits of a negative one
// stop counting far below all numbers.
func (d *decoder) exponent(power int) (int, error) {
	minus := false
	if !d.take("+") {
		minus = d.take("-")
	}
	if !d.digit() {
		return 0, d.wrong("an exponent without digits")
	}
	n := 0
	for first := true; d.digit(); d.at, first = d.at+1, false {
		if minus && n > (power+2147483639)/10 {
			continue
		}
		n = n*10 + int(d.s[d.at]-'0')
		if !minus && !first && n > 308-power {
			return 0, d.wrong("a number that is too large")
		}
	}
	if minus {
		n = -n
	}
	return n, nil
}

// scale moves the decimal point.
func scale(f float64, power int) float64 {
	switch {
	case power < -308:
		return 0
	case power < 0:
		return f / powerOfTen(-power)
	}
	return f * powerOfTen(power)
}

// powerOfTen is exact to the last bit, which math.Pow10 need not be.
func powerOfTen(n int) float64 {
	f, _ := strconv.ParseFloat("1e"+strconv.Itoa(n), 64)
	return f
}

// decodeObject reads a JSON object; it returns nil for any other text.
func decodeObject(s string) (*value, error) {
	v, err := decode(s)
	switch {
	case errors.Is(err, tensor.ErrCorrupt):
		return nil, nil
	case err != nil:
		return nil, err
	case v.kind != object:
		return nil, nil
	}
	return v, nil
}
