package hub

import (
	"path/filepath"
	"strings"
	"time"
)

const (
	// staleNote is the age at which an incomplete note is stale: writing one takes seconds, copying a large file minutes.
	staleNote = 24 * time.Hour
	// stalePart is the age at which an unfinished download is stale, for example because its commit is no longer requested.
	stalePart = 30 * 24 * time.Hour
)

// sweep removes files that killed runs left and that no program will need. Files that cannot be removed are left for another run.
func (c *cache) sweep(now time.Time) {
	remove := func(dir string, age time.Duration, left func(name string) bool) {
		root, err := c.open(false)
		if err != nil {
			return
		}
		f, err := root.Open(c.rel(dir))
		if err != nil {
			return
		}
		defer f.Close()
		entries, err := f.ReadDir(-1)
		if err != nil {
			return
		}
		for _, e := range entries {
			st, err := e.Info()
			if err == nil && st.Mode().IsRegular() && left(e.Name()) && now.Sub(st.ModTime()) > age {
				_ = root.Remove(c.rel(filepath.Join(dir, e.Name())))
			}
		}
	}
	remove(c.own(), staleNote, func(name string) bool { return strings.HasSuffix(name, ".tmp") })
	// The part and its journal share a prefix, and a running download changes both.
	remove(filepath.Join(c.dir, "blobs"), stalePart, func(name string) bool { return strings.Contains(name, partName) })
}
