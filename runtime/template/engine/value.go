package engine

import (
	"math"
	"strings"
)

// kind is the type of a value. The engine orders values of different types by it.
type kind uint8

const (
	null kind = iota
	no
	yes
	object
	array
	text
	number
)

// form is how a number is stored.
type form uint8

const (
	integer  form = iota
	unsigned      // above 2^63-1; to most of the engine it is neither integer nor fraction
	fraction
)

// value is a value of the engine. Reading a variable returns its own value, not a copy, so that later assignments change
// it; assigning copies. Lists and objects own their elements.
type value struct {
	kind     kind
	form     form
	bits     uint64 // of a number
	text     string
	elements []*value
	members  []member // in the order of insertion; JSON may give a key twice, of which the first is found
}

type member struct {
	key   string
	value *value
}

// undefinedKey marks the object that stands for missing values.
const undefinedKey = "__jinja_undefined__"

func newText(s string) *value { return &value{kind: text, text: s} }

func newInt(i int64) *value { return &value{kind: number, bits: uint64(i)} }

func newFloat(f float64) *value {
	return &value{kind: number, form: fraction, bits: math.Float64bits(f)}
}

func newBool(b bool) *value {
	if b {
		return &value{kind: yes}
	}
	return &value{kind: no}
}

// newObject makes an object of pairs; a key must be new.
func newObject(pairs ...member) *value { return &value{kind: object, members: pairs} }

func newUndefined() *value { return newObject(member{undefinedKey, newBool(true)}) }

// cString is the part of a text that C code reads: up to a zero byte.
func cString(s string) string {
	if i := strings.IndexByte(s, 0); i >= 0 {
		return s[:i]
	}
	return s
}

// member returns the value of a key; nil if it is missing or v is not an object.
func (v *value) member(key string) *value {
	if v.kind != object {
		return nil
	}
	key = cString(key)
	for i := range v.members {
		if v.members[i].key == key {
			return v.members[i].value
		}
	}
	return nil
}

// place returns the member of a key, which it creates if missing. A value that is not an object becomes an empty one.
func (v *value) place(key string) *value {
	if v.kind != object {
		*v = value{kind: object}
	}
	if m := v.member(key); m != nil {
		return m
	}
	m := &value{}
	v.members = append(v.members, member{key, m})
	return m
}

func (v *value) isUndefined() bool { return v.member(undefinedKey) != nil }

func (v *value) isInteger() bool { return v.kind == number && v.form == integer }

func (v *value) isFraction() bool { return v.kind == number && v.form == fraction }

// integer is a value as the engine reads an integer: 0 unless it is a number, the bits of a fraction.
func (v *value) integer() int64 {
	if v.kind != number {
		return 0
	}
	return int64(v.bits)
}

// float is a number as a float64.
func (v *value) float() float64 {
	switch v.form {
	case fraction:
		return math.Float64frombits(v.bits)
	case unsigned:
		return float64(v.bits)
	}
	return float64(int64(v.bits))
}

// size is the number of elements of a list or object, 0 for others.
func (v *value) size() int { return len(v.elements) + len(v.members) }

// truth reports whether a value counts as true.
func (v *value) truth() bool {
	switch v.kind {
	case null, no:
		return false
	case text:
		return v.text != ""
	case number:
		return v.float() != 0
	case array:
		return len(v.elements) > 0
	case object:
		return len(v.members) > 0 && !v.isUndefined()
	}
	return true
}

// compare orders two values: by type, then objects by the number of their members, and texts up to a zero byte.
func (r *renderer) compare(a, b *value) int {
	r.step(1 + min(len(a.text), len(b.text))/64)
	switch {
	case a.kind != b.kind:
		return int(a.kind) - int(b.kind)
	case a.kind == text:
		return strings.Compare(cString(a.text), cString(b.text))
	case a.isFraction() || b.isFraction():
		return order(a.float(), b.float())
	case a.kind == number:
		return order(a.integer(), b.integer())
	case a.size() != b.size():
		return order(a.size(), b.size())
	case a.kind == array:
		for i := range a.elements {
			if c := r.compare(a.elements[i], b.elements[i]); c != 0 {
				return c
			}
		}
	}
	return 0
}

// order is 0 if neither is less, as with NaN.
func order[T int | int64 | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
