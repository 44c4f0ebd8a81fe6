package mnn

import (
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMarshalGolden(t *testing.T) {
	for name, g := range map[string]*Graph{"small": smallGraph(), "experts": expertGraph()} {
		t.Run(name, func(t *testing.T) { compareGolden(t, g) })
	}
}

func compareGolden(t *testing.T, g *Graph) {
	b, err := g.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got := annotate(b)
	golden := filepath.Join("testdata", t.Name()+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(golden), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.ReplaceAll(string(want), "\r\n", "\n"), got); d != "" {
		t.Errorf("run with -update if this is meant:\n%s", d)
	}
}

// annotate prints a verified buffer: offset, bytes and meaning of every piece, in the order of the file.
func annotate(b []byte) string {
	a := &annotator{b: b, notes: map[int]note{}}
	a.table(a.offset(0, "root"), "", netLayout)
	var out strings.Builder
	end := 0
	for _, pos := range slices.Sorted(maps.Keys(a.notes)) {
		if end < pos {
			fmt.Fprintf(&out, "%06x  %-32x %s\n", end, b[end:pos], "padding")
		}
		n := a.notes[pos]
		fmt.Fprintf(&out, "%06x  %-32x %s\n", pos, b[pos:pos+n.size], n.text)
		end = pos + n.size
	}
	fmt.Fprintf(&out, "%06x  %-32s end\n", end, "")
	return out.String()
}

type note struct {
	size int
	text string
}

type annotator struct {
	b     []byte
	notes map[int]note
}

func (a *annotator) note(pos, size int, format string, args ...any) {
	a.notes[pos] = note{size, strings.TrimSpace(fmt.Sprintf(format, args...))}
}

func (a *annotator) u16(pos int) int { return int(binary.LittleEndian.Uint16(a.b[pos:])) }
func (a *annotator) u32(pos int) int { return int(binary.LittleEndian.Uint32(a.b[pos:])) }

func (a *annotator) offset(pos int, what string) int {
	at := pos + a.u32(pos)
	a.note(pos, 4, "%s: at %06x", what, at)
	return at
}

func (a *annotator) table(pos int, path string, l *layout) {
	vt := pos - int(int32(a.u32(pos)))
	a.note(pos, 4, "%s %s, vtable at %06x", path, l.name, vt)
	if _, seen := a.notes[vt]; !seen {
		a.note(vt, 4, "vtable of %s, length %d, table %d", l.name, a.u16(vt), a.u16(vt+2))
	}
	member := ParamNone
	for slot := range (a.u16(vt) - 4) / 2 {
		f := l.fields[slot]
		a.note(vt+4+2*slot, 2, "  %d %s", slot, f.name)
		if off := a.u16(vt + 4 + 2*slot); off != 0 {
			a.field(pos+off, strings.TrimPrefix(path+"."+f.name, "."), f, member)
			member = ParamType(a.b[pos+off])
		}
	}
}

func (a *annotator) field(pos int, path string, f field, member ParamType) {
	switch f.kind {
	case byteValue:
		a.note(pos, 1, "%s = %d", path, int8(a.b[pos]))
		return
	case wordValue:
		a.note(pos, 4, "%s = %s", path, a.word(pos))
		return
	}
	at := a.offset(pos, path)
	switch f.kind {
	case param:
		a.table(at, path, paramLayouts[member])
	case child:
		a.table(at, path, f.of)
	case text:
		a.text(at, path)
	default:
		n := a.u32(at)
		a.note(at, 4, "%s: %d elements", path, n)
		width := map[kind]int{bytes1: 1, bytes2: 2, bytes8: 8}[f.kind]
		if width == 0 {
			width = 4
		}
		for i := range n {
			pos, path := at+4+i*width, fmt.Sprintf("%s[%d]", path, i)
			switch f.kind {
			case texts:
				a.text(a.offset(pos, path), path)
			case children:
				a.table(a.offset(pos, path), path, f.of)
			case bytes8:
				a.note(pos, 8, "%s = %d", path, int64(binary.LittleEndian.Uint64(a.b[pos:])))
			case bytes4:
				a.note(pos, 4, "%s = %s", path, a.word(pos))
			default:
				a.note(pos, width, "%s", path)
			}
		}
	}
}

// word prints four bytes as the integer or the float that they look like.
func (a *annotator) word(pos int) string {
	v := uint32(a.u32(pos))
	if i := int32(v); i > -1<<24 && i < 1<<24 {
		return fmt.Sprint(i)
	}
	return fmt.Sprintf("%g", math.Float32frombits(v))
}

func (a *annotator) text(at int, path string) {
	n := a.u32(at)
	a.note(at, 4, "%s: %d bytes", path, n)
	a.note(at+4, n+1, "%q", a.b[at+4:at+4+n])
}
