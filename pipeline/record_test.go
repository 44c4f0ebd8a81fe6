package pipeline

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/fault"
)

var someSum = digest.Of(nil).Hex()

// sealedRecord returns the text of a record of files.
func sealedRecord(t testing.TB, name string, files ...RecordedFile) []byte {
	t.Helper()
	text, err := (&Record{Digest: digest.Of(nil), Files: files}).Seal(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestParseRecord(t *testing.T) {
	t.Parallel()
	files := []RecordedFile{{"a", 0, someSum}, {"dir/a", 1 << 40, someSum}, {"dir/b c", 7, someSum}}
	text := sealedRecord(t, "stage-key", files...)
	rec, err := ParseRecord("stage-key", text)
	if err != nil || rec.Size() != 1<<40+7 {
		t.Fatal(rec, err)
	}
	if diff := cmp.Diff(files, rec.Files); diff != "" {
		t.Error(diff)
	}
	if _, err := ParseRecord("stage-other", text); !errors.Is(err, fault.ErrCorrupt) {
		t.Errorf("of another entry: %v", err)
	}
	for name, bad := range map[string][]RecordedFile{
		"up":             {{"../a", 1, someSum}},
		"inside up":      {{"a/../../b", 1, someSum}},
		"absolute":       {{"/etc/passwd", 1, someSum}},
		"empty":          {{"", 1, someSum}},
		"dot":            {{".", 1, someSum}},
		"backslash":      {{`..\a`, 1, someSum}},
		"drive":          {{"C:a", 1, someSum}},
		"control":        {{"a\nb", 1, someSum}},
		"the record":     {{DoneFile, 1, someSum}},
		"twice":          {{"a", 1, someSum}, {"a", 1, someSum}},
		"file and dir":   {{"a", 1, someSum}, {"a/b", 1, someSum}},
		"negative":       {{"a", -1, someSum}},
		"huge":           {{"a", 1 << 62, someSum}},
		"huge together":  {{"a", 1 << 45, someSum}, {"b", 1 << 45, someSum}, {"c", 1, someSum}},
		"no digest":      {{"a", 1, ""}},
		"digest of dirs": {{"a", 1, "../../" + someSum[6:]}},
	} {
		if rec, err := ParseRecord("x", sealedRecord(t, "x", bad...)); rec != nil || !errors.Is(err, fault.ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, rec, err)
		}
	}
}

// FuzzParseRecord holds that the files of a record lie in its entry, and that it is written as it was read.
func FuzzParseRecord(f *testing.F) {
	seeds := []string{
		string(sealedRecord(f, "x", RecordedFile{"a/b", 3, someSum})), string(sealedRecord(f, "x")),
		string(sealedRecord(f, "x", RecordedFile{"../a", 3, someSum})), `{}`, ``,
		fmt.Sprintf(`{"sha256":"%s","record":{"files":[{"name":"a","size":9223372036854775807,"sha256":"%s"}]}}`, someSum, someSum),
	}
	for _, s := range seeds {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, text string, inside bool) {
		b := []byte(text)
		if inside { // behind the seal, which random bytes never pass
			var rec Record
			for i, name := range strings.Split(text, ",") {
				rec.Files = append(rec.Files, RecordedFile{name, int64(i) << (len(name) % 60), someSum})
			}
			b, _ = rec.Seal("x")
		}
		rec, err := ParseRecord("x", b)
		if err != nil {
			if rec != nil || !errors.Is(err, fault.ErrCorrupt) {
				t.Errorf("%+v, %v", rec, err)
			}
			return
		}
		if rec.Size() < 0 {
			t.Errorf("size %d", rec.Size())
		}
		for _, x := range rec.Files {
			if at := path.Join("entry", x.Name); !strings.HasPrefix(at, "entry/") || x.Size < 0 || !digest.IsHex(x.SHA256) {
				t.Errorf("%+v", x)
			}
		}
		again, err := rec.Seal("x")
		if err != nil {
			t.Fatal(err)
		}
		if two, err := ParseRecord("x", again); err != nil || !cmp.Equal(two, rec) {
			t.Errorf("%+v, %v", two, err)
		}
	})
}
