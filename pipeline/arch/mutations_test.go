package arch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestChanges changes keys of a config, and demands an error in these words or these lines of the summary that were not there
// before; no line says that nothing may change. testdata/changes.txt holds the cases: a line with the checkpoint and the
// changes, and below it, indented, what is wanted. A value of "REMOVED" takes a key away.
func TestChanges(t *testing.T) {
	text, err := os.ReadFile("testdata/changes.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		lines := strings.Split(block, "\n")
		base, changes, _ := strings.Cut(lines[0], " ")
		want := []string{}
		for _, l := range lines[1:] {
			want = append(want, strings.TrimPrefix(l, "\t"))
		}
		cases++
		t.Run(lines[0], func(t *testing.T) {
			var fields map[string]any
			d := json.NewDecoder(strings.NewReader("{" + changes + "}"))
			d.UseNumber()
			if err := d.Decode(&fields); err != nil {
				t.Fatal(err)
			}
			for k, v := range fields {
				if v == "REMOVED" {
					fields[k] = removed
				}
			}
			ck := loadCheckpoint(t, filepath.Join("testdata", base))
			before, err := describe(ck.config, ck.tensors, Options{})
			if err != nil {
				t.Fatal(err)
			}
			after, err := describe(edit(t, ck.config, fields), ck.tensors, Options{})
			got := []string{}
			if err != nil {
				got = append(got, err.Error())
			} else {
				had := summary(before)
				got = slices.DeleteFunc(summary(after), func(line string) bool { return slices.Contains(had, line) })
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	if cases < 250 {
		t.Errorf("%d cases", cases)
	}
}
