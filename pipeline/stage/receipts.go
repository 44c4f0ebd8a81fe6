package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/llmexport/llmexport/internal/sealed"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish/place"
)

// ReceiptsFile is the file of a store with the receipts of every package's last publication, by name.
const ReceiptsFile = "receipts.json"

// keptReceipt is a receipt with a checksum of its own.
type keptReceipt struct {
	place.Receipt
	SHA256 string `json:"sha256"`
}

// keep gives a receipt of a package its checksum.
func keep(name string, r place.Receipt) (keptReceipt, error) {
	sum, err := sealed.Sum(name, r)
	return keptReceipt{r, sum}, err
}

// recordReceipts adds the receipts of the package of a name to those in the store.
func recordReceipts(ctx context.Context, store pipeline.Store, name string, receipts []place.Receipt) error {
	if len(receipts) == 0 {
		return nil
	}
	unlock, err := store.Lock(ctx, ReceiptsFile)
	if err != nil {
		return err
	}
	defer unlock()
	path := filepath.Join(store.Dir(), ReceiptsFile)
	all := map[string][]keptReceipt{}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		all = map[string][]keptReceipt{} // the run does not fail because of a damaged record
	}
	for of, list := range all { // damaged receipts are dropped
		all[of] = slices.DeleteFunc(list, func(x keptReceipt) bool {
			again, err := keep(of, x.Receipt)
			return err != nil || again != x
		})
	}
	before, now := all[name], make([]keptReceipt, len(receipts))
	for i, r := range receipts {
		same := func(x keptReceipt) bool { return x.Store == r.Store && x.Ref == r.Ref && x.Digest == r.Digest }
		if j := slices.IndexFunc(before, same); j >= 0 && r.Status == place.Unchanged {
			now[i] = before[j] // the earlier receipt tells how the package was published
		} else if now[i], err = keep(name, r); err != nil {
			return err
		}
	}
	all[name] = now
	text, err := json.MarshalIndent(all, "", "  ")
	if text = append(text, '\n'); err != nil || bytes.Equal(text, b) {
		return err
	}
	return pipeline.WriteFile(path, text)
}
