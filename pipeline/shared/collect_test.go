package shared

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/pipeline"
)

// aged is a store in a directory whose texts and blobs get the age that a test wants.
type aged struct {
	t   testing.TB
	dir string
	*Store
}

func newAged(t testing.TB) aged {
	dir := t.TempDir()
	s := storeIn(t, dir)
	if err := s.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	return aged{t, dir, s}
}

// entry offers an entry with a file of its own and one that all have.
func (a aged) entry(name string) {
	a.t.Helper()
	times := 0
	stage, key, _ := strings.Cut(name, "-")
	_, err := machine(a.t, a.Store).Do(a.t.Context(), &pipeline.Limits{}, stage, key, build(&times, map[string]string{"own": name, "all": "all"}))
	if err != nil {
		a.t.Fatal(err)
	}
}

// age makes everything that is there older.
func (a aged) age(d time.Duration) {
	a.t.Helper()
	for _, pattern := range []string{"texts/*", "blobs/*/*"} {
		list, _ := filepath.Glob(filepath.Join(a.dir, filepath.FromSlash(pattern)))
		for _, at := range list {
			st, err := os.Stat(at)
			if err == nil {
				err = os.Chtimes(at, st.ModTime().Add(-d), st.ModTime().Add(-d))
			}
			if err != nil {
				a.t.Fatal(err)
			}
		}
	}
}

// texts lists the names in the store.
func (a aged) texts() (names []string) {
	a.t.Helper()
	list, err := os.ReadDir(filepath.Join(a.dir, "texts"))
	if err != nil {
		a.t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func (a aged) has(content string) bool {
	a.t.Helper()
	b := []byte(content)
	there, err := a.blobs.Has(a.t.Context(), transfer.Blob{Size: int64(len(b)), SHA256: digest.Of(b).Hex()})
	if err != nil {
		a.t.Fatal(err)
	}
	return there
}

func (a aged) collect(older time.Duration, dry bool) *Garbage {
	a.t.Helper()
	g, err := a.Collect(a.t.Context(), time.Now().Add(-older), dry)
	if err != nil {
		a.t.Fatal(err)
	}
	return g
}

func TestCollect(t *testing.T) {
	t.Parallel()
	const month = 30 * 24 * time.Hour
	a := newAged(t)
	for _, name := range []string{"codes-unused", "codes-used", "codes-noted", "codes-fetched"} {
		a.entry(name)
	}
	if err := WriteNote(t.Context(), a.Store, "old", "v", "codes-used"); err != nil {
		t.Fatal(err)
	}
	a.age(2 * month)
	a.entry("codes-young")
	if err := WriteNote(t.Context(), a.Store, "young", "v", "codes-noted"); err != nil {
		t.Fatal(err)
	}
	if ok, err := a.Fetch(t.Context(), "codes-fetched", t.TempDir()); !ok || err != nil { // which is a use
		t.Fatal(ok, err)
	}
	gone := []string{"codes-unused", "codes-used", "note-old"}
	before := a.texts()
	if g := a.collect(month, true); !slices.Equal(g.Names, gone) || g.Blobs != 2 || !slices.Equal(a.texts(), before) || !a.has("codes-unused") {
		t.Errorf("dry run: %+v, left %q", g, a.texts())
	}
	if g := a.collect(month, false); !slices.Equal(g.Names, gone) || g.Blobs != 2 || g.Bytes != int64(len("codes-unused")+len("codes-used")) || g.KeptBlobs != 4 {
		t.Errorf("%+v", g)
	}
	if want := []string{"codes-fetched", "codes-noted", "codes-young", "format", "note-young"}; !slices.Equal(a.texts(), want) {
		t.Errorf("left %q", a.texts())
	}
	want := map[string]bool{"codes-unused": false, "codes-used": false, "codes-noted": true, "codes-young": true, "codes-fetched": true, "all": true}
	for content, want := range want {
		if a.has(content) != want {
			t.Errorf("blob of %s: %v", content, !want)
		}
	}
	for _, name := range []string{"codes-noted", "codes-young", "codes-fetched"} {
		if ok, err := a.Fetch(t.Context(), name, t.TempDir()); !ok || err != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
	if g := a.collect(month, false); len(g.Names) > 0 || g.Blobs > 0 {
		t.Errorf("again: %+v", g)
	}
}

// The blobs of a push that has begun stay, and a push waits for a collection that has begun.
func TestCollectBesidePush(t *testing.T) {
	t.Parallel()
	a := newAged(t)
	a.entry("codes-old")
	a.age(1000 * time.Hour)
	sum := digest.Of([]byte("codes-old")).Hex()
	done, err := a.announce(t.Context(), []pipeline.RecordedFile{{Name: "x", Size: 9, SHA256: sum}})
	if err != nil {
		t.Fatal(err)
	}
	if g := a.collect(time.Hour, false); !slices.Equal(g.Names, []string{"codes-old"}) || !a.has("codes-old") || a.has("all") {
		t.Errorf("%+v, has %v and %v", g, a.has("codes-old"), a.has("all"))
	}
	done()
	if g := a.collect(time.Hour, false); g.Blobs != 1 || a.has("codes-old") {
		t.Errorf("%+v", g)
	}
	// A collection by another machine.
	release, err := storeIn(t, a.dir).hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Collect(t.Context(), time.Now(), false); err == nil {
		t.Error("two collections at the same time")
	}
	ctx, log := logged(t)
	pushed := make(chan error)
	go func() {
		done, err := a.announce(ctx, nil)
		if err == nil {
			done()
		}
		pushed <- err
	}()
	for { // until its announcement is there
		if slices.ContainsFunc(a.texts(), func(n string) bool { return strings.HasPrefix(n, pushPrefix) }) {
			break
		}
	}
	release()
	if err := <-pushed; err != nil {
		t.Errorf("%v: %s", err, log)
	}
	if want := []string{"format"}; !slices.Equal(a.texts(), want) {
		t.Errorf("left %q", a.texts())
	}
}

// A collection that was killed does not stop others for ever, nor does a push.
func TestCollectAfterKill(t *testing.T) {
	t.Parallel()
	a := newAged(t)
	a.entry("codes-old")
	if _, err := a.hold(t.Context()); err != nil {
		t.Fatal(err)
	}
	if busy, err := a.collecting(t.Context()); !busy || err != nil {
		t.Fatal(busy, err)
	}
	a.now = func() time.Time { return time.Now().Add(lease) }
	if _, err := a.announce(t.Context(), []pipeline.RecordedFile{{SHA256: digest.Of([]byte("codes-old")).Hex()}}); err != nil {
		t.Fatal(err)
	}
	a.now = func() time.Time { return time.Now().Add(2 * longestPush) }
	if g, err := a.Collect(t.Context(), a.now(), false); err != nil || len(g.Names) != 2 || g.Blobs != 2 {
		t.Errorf("%+v, %v", g, err)
	}
	if want := []string{"format"}; !slices.Equal(a.texts(), want) {
		t.Errorf("left %q", a.texts())
	}
}

// Damaged texts are garbage; their blobs go with them.
func TestCollectDamaged(t *testing.T) {
	t.Parallel()
	a := newAged(t)
	for i := range 2 {
		a.entry(fmt.Sprint("codes-", i))
	}
	if err := os.Truncate(filepath.Join(a.dir, "texts", "codes-0"), 10); err != nil {
		t.Fatal(err)
	}
	a.age(2 * time.Hour)
	if g := a.collect(3*time.Hour, false); !slices.Equal(g.Names, []string{"codes-0"}) || g.Blobs != 1 || a.has("codes-0") || !a.has("codes-1") {
		t.Errorf("%+v", g)
	}
}
