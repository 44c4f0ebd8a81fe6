package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// FuzzListing holds that no answer of a hub panics, and that no name it gives leaves its directory.
func FuzzListing(f *testing.F) {
	seeds := 0
	for _, list := range []func([]map[string]any) []map[string]any{
		nil,
		func(l []map[string]any) []map[string]any { l[0]["rfilename"] = "../config.json"; return l },
		func(l []map[string]any) []map[string]any { l[0]["rfilename"] = `..\LICENSE`; return l },
	} {
		h := &fakeHub{list: list, files: map[string][]byte{
			"LICENSE": nil, "model.safetensors": bytes.Repeat([]byte("w"), lfsMin), "x/config.json": []byte("{}")}}
		w := httptest.NewRecorder()
		h.serveList(w)
		f.Add(w.Body.Bytes())
		seeds++
	}
	if seeds == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseListing(b)
		if err != nil {
			if l != nil || !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
				t.Fatalf("%v, %v", l, err)
			}
			return
		}
		for i, file := range l.files {
			base := strings.TrimPrefix(file.Name, templatesDir+"/")
			if filepath.Base(base) != base || strings.ContainsAny(base, `/\:`) || base == file.Name && !wanted(base) || file.Size < 0 {
				t.Fatalf("%+v", file)
			}
			if len(file.Blob) != 40 && len(file.Blob) != 64 || i > 0 && l.files[i-1].Name >= file.Name {
				t.Fatalf("%+v", file)
			}
		}
		// What a record keeps of the list reads back.
		text, err := json.Marshal(l.files)
		if err != nil {
			t.Fatal(err)
		}
		var again []remote
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		for i := range again {
			if again[i] != l.files[i] || again[i].check() != nil {
				t.Fatalf("%+v, %+v", again[i], l.files[i])
			}
		}
	})
}
