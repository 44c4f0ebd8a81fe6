//go:build transformers

package transformerstest

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBare runs checkpoints that were saved from the model without its head: their tensors lack a prefix.
func TestBare(t *testing.T) {
	for name, prefix := range map[string]string{"qwen3-tied": "model.", "bloom": "transformer.", "lfm2": "model."} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testdata(t, name)
			whole, err := os.ReadFile(filepath.Join(c.dir, "model.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			end := 8 + binary.LittleEndian.Uint64(whole)
			header, short := object{}, object{}
			if err := json.Unmarshal(whole[8:end], &header); err != nil {
				t.Fatal(err)
			}
			for tensor, facts := range header {
				short[strings.TrimPrefix(tensor, prefix)] = facts
			}
			text, err := json.Marshal(short)
			if err != nil {
				t.Fatal(err)
			}
			bare := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
			c.dir = t.TempDir()
			if err := os.WriteFile(filepath.Join(c.dir, "model.safetensors"), append(bare, whole[end:]...), 0o666); err != nil {
				t.Fatal(err)
			}
			r := c.run(t, object{"architectures": nil}, 0)
			if r.wantEqual(t); r.changed > r.bound.worst {
				t.Errorf("%.2g nats from the checkpoint with prefixes", r.changed)
			}
		})
	}
}
