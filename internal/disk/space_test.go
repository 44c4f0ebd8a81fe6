package disk

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckSpace(t *testing.T) {
	dir := t.TempDir()
	for _, at := range []string{dir, filepath.Join(dir, "not", "there", "yet"), ".", "nowhere"} {
		if err := CheckSpace(at, 1); err != nil {
			t.Error(err)
		}
		err := CheckSpace(at, 1<<62)
		full := (*FullError)(nil)
		if !errors.As(err, &full) || full.Dir != at || full.Need != 1<<62 || full.Free <= 0 || !strings.Contains(err.Error(), "4611686.02 TB are needed") {
			t.Errorf("%s: %v", at, err)
		}
	}
}
