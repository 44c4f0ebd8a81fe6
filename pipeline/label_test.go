package pipeline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Labels go with their entries; damaged ones are as if they were not there.
func TestLabels(t *testing.T) {
	dir := t.TempDir()
	label := Label{Package: "a-int4", Model: "org/a", Recipe: "a.yaml"}
	for _, name := range []string{"weights-1", "package-2"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteLabel(dir, "weights-1", label); err != nil {
		t.Fatal(err)
	}
	labels := func() map[string]Label {
		list, err := List(dir)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]Label{}
		for _, e := range list {
			all[e.Name] = e.Label
		}
		return all
	}
	if all := labels(); len(all) != 2 || all["weights-1"] != label || all["package-2"] != (Label{}) {
		t.Errorf("%+v", all)
	}
	for _, damage := range []string{"", "{", `{"package": 3}`, strings.Repeat(" ", maxLabel+1) + "{}"} {
		if err := os.WriteFile(labelFile(dir, "weights-1"), []byte(damage), 0o666); err != nil {
			t.Fatal(err)
		}
		if all := labels(); all["weights-1"] != (Label{}) {
			t.Errorf("%.20q: %+v", damage, all)
		}
	}
	st, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	gone, err := st.Remove(func(e Entry) bool { return e.Name == "weights-1" })
	if err != nil || len(gone) != 1 || len(labels()) != 1 {
		t.Errorf("%+v, %v", gone, err)
	}
	if _, err := os.Stat(labelFile(dir, "weights-1")); !os.IsNotExist(err) {
		t.Error("the label stayed")
	}
}

// Whatever a label's file holds, reading it neither fails nor panics.
func FuzzLabel(f *testing.F) {
	for _, seed := range []string{`{"package":"a","model":"b","recipe":"c"}`, "{", `[]`, ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, labelsDir), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(labelFile(dir, "x"), b, 0o666); err != nil {
			t.Fatal(err)
		}
		l := readLabel(dir, "x")
		if err := WriteLabel(dir, "y", l); err != nil || readLabel(dir, "y") != l && len(b) < maxLabel/2 {
			t.Errorf("%+v, %v", l, err)
		}
	})
}
