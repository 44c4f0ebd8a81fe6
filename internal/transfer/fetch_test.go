package transfer

import (
	"path/filepath"
	"testing"
)

func TestFetch(t *testing.T) {
	for name, size := range map[string]int{
		"nothing": 0, "a byte": 1, "a piece": pieceSize, "a piece and a byte": pieceSize + 1,
		"two connections": 4*pieceSize + 3, "four": 12*pieceSize - 1,
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, size)
			path := filepath.Join(t.TempDir(), "file")
			last := int64(-1)
			o := quick
			o.Progress = func(done int64) {
				if done < last || done > int64(size) {
					t.Errorf("%d bytes after %d", done, last)
				}
				last = done
			}
			if err := Fetch(t.Context(), path, s.blob(), s.open(), o); err != nil {
				t.Fatal(err)
			}
			checkFile(t, path, s.content)
			if last != int64(size) || s.served.Load() != int64(size) {
				t.Errorf("%d bytes, %d told, %d served", size, last, s.served.Load())
			}
			if n := s.resolved.Load(); n > 1 {
				t.Errorf("the hub was asked %d times", n)
			}
		})
	}
}
