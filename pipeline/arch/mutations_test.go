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
		ck := loadCheckpoint(t, filepath.Join("testdata", base))
		before, err := Describe(ck.config, ck.tensors, Options{})
		if err != nil {
			t.Fatal(base, err)
		}
		modelType := before.Text.ModelType
		cases[modelType] += len(table[base])
		text, err := os.ReadFile(filepath.Join("testdata", base, "changes.txt"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
			cases[modelType]++
			lines := strings.Split(block, "\n")
			want := []string{}
			for _, l := range lines[1:] {
				want = append(want, strings.TrimPrefix(l, "\t"))
			}
			t.Run(base+" "+lines[0], func(t *testing.T) {
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
				after, err := Describe(edit(t, ck.config, fields), ck.tensors, Options{})
				got := []string{}
				if err != nil {
					got = append(got, err.Error())
				} else {
					had := modelSummary(before)
					got = slices.DeleteFunc(modelSummary(after), func(line string) bool { return slices.Contains(had, line) })
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
			})
		}
	}
	for modelType, n := range cases {
		if n < minChanges {
			t.Errorf("%s: %d changes in the files changes.txt of its checkpoints, want at least %d", modelType, n, minChanges)
		}
	}
}
