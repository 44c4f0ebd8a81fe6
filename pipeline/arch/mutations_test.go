package arch

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// minChanges is how many changes of the config each family is tried with.
const minChanges = 5

// TestChanges changes keys of a config, and demands an error in these words or these lines of the summary that were not there
// before; no line says that nothing may change. changes.txt in the directory of a checkpoint holds its cases: a line with the
// changes, and below it, indented, what is wanted. A value of "REMOVED" takes a key away.
func TestChanges(t *testing.T) {
	cases, table := map[string]int{}, describeChanges()
	for _, base := range checkpoints(t) {
		d, n := changesOf(t, filepath.Join("testdata", base), Options{})
		cases[d.ModelType] += len(table[base]) + n
	}
	enough(t, cases)
}

// enough demands several changes of every family.
func enough(t *testing.T, cases map[string]int) {
	t.Helper()
	for modelType, n := range cases {
		if n < minChanges {
			t.Errorf("%s: %d changes in the files changes.txt of its checkpoints, want at least %d", modelType, n, minChanges)
		}
	}
}

// changesOf tries the changes of a checkpoint, and returns its description and their number.
func changesOf(t *testing.T, dir string, opts Options) (before *Decoder, n int) {
	t.Helper()
	ck := loadCheckpoint(t, dir)
	model, err := Describe(ck.config, ck.tensors, opts)
	if err != nil {
		t.Fatal(dir, err)
	}
	before = model.Text
	text, err := os.ReadFile(filepath.Join(dir, "changes.txt"))
	if errors.Is(err, fs.ErrNotExist) {
		return before, 0
	}
	if err != nil {
		t.Fatal(err)
	}
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		n++
		lines := strings.Split(block, "\n")
		want := []string{}
		for _, l := range lines[1:] {
			want = append(want, strings.TrimPrefix(l, "\t"))
		}
		t.Run(filepath.Base(dir)+" "+lines[0], func(t *testing.T) {
			var fields map[string]any
			d := json.NewDecoder(strings.NewReader("{" + lines[0] + "}"))
			d.UseNumber()
			if err := d.Decode(&fields); err != nil {
				t.Fatal(err)
			}
			for k, v := range fields {
				if v == "REMOVED" {
					fields[k] = removed
				}
			}
			after, err := Describe(edit(t, ck.config, fields), ck.tensors, opts)
			got := []string{}
			if err != nil {
				got = append(got, err.Error())
			} else {
				had := modelSummary(model)
				got = slices.DeleteFunc(modelSummary(after), func(line string) bool { return slices.Contains(had, line) })
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	return before, n
}
