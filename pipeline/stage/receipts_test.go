package stage

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish/place"
)

// An unchanged package keeps the receipt that says how it came to its place, as long as its checksum agrees.
func TestReceipts(t *testing.T) {
	t.Parallel()
	store, err := pipeline.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(store.Dir(), ReceiptsFile)
	record := func(status place.Status, uploaded int64) place.Receipt {
		t.Helper()
		r := place.Receipt{Status: status, Store: "dir", Ref: "dist/tiny", Digest: digest.Of(nil), Files: 9, Bytes: 1000, Uploaded: uploaded}
		if err := recordReceipts(t.Context(), store, "tiny", []place.Receipt{r}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		var all map[string][]place.Receipt
		if err == nil {
			err = json.Unmarshal(b, &all)
		}
		if err != nil || len(all) != 1 || len(all["tiny"]) != 1 {
			t.Fatalf("%s: %v", b, err)
		}
		return all["tiny"][0]
	}
	record(place.Published, 1000)
	if r := record(place.Unchanged, 0); r.Status != place.Published || r.Uploaded != 1000 {
		t.Errorf("%+v", r)
	}
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, bytes.Replace(b, []byte(`"files": 9`), []byte(`"files": 8`), 1), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r := record(place.Unchanged, 0); r.Status != place.Unchanged || r.Files != 9 {
		t.Errorf("a damaged receipt is kept: %+v", r)
	}
}
