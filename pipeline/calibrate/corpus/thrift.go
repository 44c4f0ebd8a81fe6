package corpus

// walker reads values of the compact protocol of Thrift, in which Parquet writes its metadata, and checks that every length
// fits into the remaining bytes. The library that parses them allocates memory for any length.
// https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
type walker struct {
	b   []byte
	at  int
	bad bool
}

// Types of the compact protocol.
const (
	typeStop, typeTrue, typeFalse, typeByte, typeI16, typeI32 = 0, 1, 2, 3, 4, 5
	typeI64, typeDouble, typeBinary, typeList, typeSet        = 6, 7, 8, 9, 10
	typeMap, typeStruct                                       = 11, 12
)

// maxNesting is far more than the metadata of Parquet nests.
const maxNesting = 32

// structure reads a struct. It calls visit with the integers and booleans (0 and 1) in it and in the structs of its fields, with
// the ids of the fields that lead there (outer is 0 for its own).
func (w *walker) structure(depth, outer int, visit func(outer, id int, v int64)) {
	if depth > maxNesting {
		w.bad = true
	}
	for id := 0; !w.bad; {
		head := w.next()
		if w.bad || head == typeStop {
			return
		}
		if delta := int(head >> 4); delta != 0 {
			id += delta
		} else {
			id = int(w.integer())
		}
		switch kind := int(head & 15); kind {
		case typeTrue, typeFalse:
			if depth < 2 {
				visit(outer, id, int64(typeFalse-kind))
			}
		case typeI16, typeI32, typeI64:
			if v := w.integer(); depth < 2 && !w.bad {
				visit(outer, id, v)
			}
		case typeStruct:
			w.structure(depth+1, id, visit)
		default:
			w.value(kind, depth)
		}
	}
}

// value reads one value. A boolean takes a byte here; in a struct it takes none.
func (w *walker) value(kind, depth int) {
	switch kind {
	case typeTrue, typeFalse, typeByte:
		w.next()
	case typeI16, typeI32, typeI64:
		w.integer()
	case typeDouble:
		w.skip(8)
	case typeBinary:
		w.skip(w.length())
	case typeList, typeSet:
		head := w.next()
		n := uint64(head >> 4)
		if n == 15 {
			n = w.length()
		}
		for ; n > 0 && !w.bad; n-- {
			w.element(int(head&15), depth)
		}
	case typeMap:
		if n := w.length(); n > 0 {
			kinds := w.next()
			for ; n > 0 && !w.bad; n-- {
				w.element(int(kinds>>4), depth)
				w.element(int(kinds&15), depth)
			}
		}
	default:
		w.bad = true
	}
}

func (w *walker) element(kind, depth int) {
	if depth++; depth > maxNesting {
		w.bad = true
	} else if kind == typeStruct {
		w.structure(max(depth, 2), 0, nil)
	} else {
		w.value(kind, depth)
	}
}

func (w *walker) next() byte {
	if w.at >= len(w.b) {
		w.bad = true
		return 0
	}
	w.at++
	return w.b[w.at-1]
}

// length reads a length, which is invalid if it exceeds the remaining bytes.
func (w *walker) length() uint64 {
	v := w.varint()
	if v > uint64(len(w.b)-w.at) {
		w.bad = true
		return 0
	}
	return v
}

func (w *walker) skip(n uint64) {
	if n > uint64(len(w.b)-w.at) {
		w.bad = true
		return
	}
	w.at += int(n)
}

func (w *walker) integer() int64 {
	v := w.varint()
	return int64(v>>1) ^ -int64(v&1)
}

func (w *walker) varint() uint64 {
	v := uint64(0)
	for shift := 0; shift < 64; shift += 7 {
		c := w.next()
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	w.bad = true
	return 0
}
