package mnn

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSchemaMatchesLayouts holds the tables of the bounds check to mnn.fbs, from which the code that reads
// the buffer is generated: a difference of one slot would let that code read what was never checked.
func TestSchemaMatchesLayouts(t *testing.T) {
	src, err := os.ReadFile("mnn.fbs")
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`//.*`).ReplaceAllString(string(src), "")
	tables := map[string][]string{}
	fieldPattern := regexp.MustCompile(`(\w+)\s*:\s*(\[?\w+\]?)[^;]*;`)
	for _, m := range regexp.MustCompile(`(?s)table (\w+) \{(.*?)\}`).FindAllStringSubmatch(text, -1) {
		fields := []string{}
		for _, f := range fieldPattern.FindAllStringSubmatch(m[2], -1) {
			if f[2] == "OpParameter" {
				fields = append(fields, f[1]+"_type:byte")
			}
			fields = append(fields, f[1]+":"+f[2])
		}
		tables[m[1]] = fields
	}
	described := map[string]bool{"Opaque": true}
	for l := range allLayouts() {
		described[l.name] = true
		var got, want []string
		for _, f := range l.fields {
			got = append(got, f.name+" "+f.describe())
		}
		for _, f := range tables[l.name] {
			name, typ, _ := strings.Cut(f, ":")
			want = append(want, name+" "+describeType(t, typ))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: mnn.fbs (-), layouts (+):\n%s", l.name, d)
		}
	}
	for name := range tables {
		if !described[name] {
			t.Errorf("no layout of %s", name)
		}
	}
	union := regexp.MustCompile(`(?s)union OpParameter \{(.*?)\}`).FindStringSubmatch(text)[1]
	members := regexp.MustCompile(`(\w+) = (\d+)`).FindAllStringSubmatch(union, -1)
	for _, m := range members {
		n, err := strconv.ParseUint(m[2], 10, 8)
		if err != nil {
			t.Fatal(err)
		}
		typ := ParamType(n)
		if l := paramLayouts[typ]; l == nil || l.name != m[1] || typ.String() != m[1] {
			t.Errorf("member %s = %s of the union: layout %v, name %s", m[1], m[2], l, typ)
		}
	}
	if len(members) != len(paramLayouts) {
		t.Errorf("%d members of the union, %d layouts", len(members), len(paramLayouts))
	}
}

// allLayouts walks all layouts, and fails to end if one contains itself: the check has no limit on depth.
func allLayouts() map[*layout]bool {
	all := map[*layout]bool{}
	var visit func(l *layout, above []*layout)
	visit = func(l *layout, above []*layout) {
		if slices.Contains(above, l) {
			panic("layout of " + l.name + " contains itself")
		}
		all[l] = true
		for _, f := range l.fields {
			if f.of != nil {
				visit(f.of, append(above, l))
			}
		}
	}
	visit(netLayout, nil)
	for _, l := range paramLayouts {
		visit(l, []*layout{netLayout, opLayout})
	}
	return all
}

// describe names what a bounds check must know of a field. The elements of a refused list are never looked
// at, so that their width is all that counts.
func (f field) describe() string {
	switch f.kind {
	case byteValue:
		return "1 byte"
	case wordValue:
		return "4 bytes"
	case text:
		return "string"
	case bytes1, bytes2, bytes4, bytes8:
		return fmt.Sprintf("list of %d bytes", 1<<(f.kind-bytes1))
	case texts:
		return "list of string"
	case children:
		return "list of " + f.of.name
	case child:
		if f.refuse {
			return "table Opaque"
		}
		return "table " + f.of.name
	}
	return "table OpParameter"
}

func describeType(t *testing.T, typ string) string {
	widths := map[string]int{"bool": 1, "byte": 1, "ubyte": 1, "ushort": 2, "int": 4, "uint": 4, "float": 4, "long": 8}
	elem, list := strings.CutPrefix(typ, "[")
	elem = strings.TrimSuffix(elem, "]")
	switch w := widths[elem]; {
	case list && w > 0:
		return fmt.Sprintf("list of %d bytes", w)
	case list && elem == "Opaque":
		return "list of 4 bytes"
	case list:
		return "list of " + elem
	case w == 1:
		return "1 byte"
	case w == 4:
		return "4 bytes"
	case elem == "string":
		return "string"
	}
	return "table " + elem
}

func TestRulesNameKnownParameters(t *testing.T) {
	for typ, r := range rules {
		if _, ok := opNames[typ]; !ok {
			t.Errorf("op type %d has no name", typ)
		}
		if _, ok := newParams[r.param]; !ok && r.param != ParamNone {
			t.Errorf("%s: no parameter %s", typ, r.param)
		}
	}
}
