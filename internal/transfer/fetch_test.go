package transfer

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestFetch(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
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

// TestFetchNothingMissing continues a file of which only the digest was not known when an earlier run ended.
func TestFetchNothingMissing(t *testing.T) {
	b := noise(faultSize)
	path := filepath.Join(t.TempDir(), "file")
	dir, err := os.OpenRoot(filepath.Dir(path))
	must(t, err)
	defer dir.Close()
	p, err := openPartial(dir, "file", blobOf(b))
	must(t, err)
	for i := range p.pieces {
		part := b[p.start(i) : p.start(i)+p.length(i)]
		_, err := p.file.WriteAt(part, p.start(i))
		must(t, errors.Join(err, p.journal.add(i, crc32.Checksum(part, castagnoli))))
	}
	must(t, p.close())
	must(t, Fetch(t.Context(), path, p.blob, func(context.Context, int64, int64) (io.ReadCloser, error) {
		return nil, errors.New("asked for bytes that are there")
	}, quick))
	checkFile(t, path, b)
}
