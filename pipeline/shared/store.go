// Package shared is the store that several machines have in common: entries of [pipeline.Directory], the files of checkpoints,
// unfinished entries, and notes. It lies in a directory, a bucket or a repository of a registry, see [blob.Store].
//
// The text of an entry is its record, which is sealed with the name of the entry and lists its files; every file is a blob under
// its SHA-256, so the same file of two entries is stored and sent once. All that is read is compared: a text with its seal, a
// blob with its digest. What is wrong is reported, not used, and replaced once the entry has been built again.
//
// Names of texts:
//
//	format                     version of this layout
//	<stage>-<key>              record of a finished entry
//	<stage>-<key>.partial      record of what is finished of an entry under construction
//	checkpoint-<key>           record of the files of a commit of a repository
//	note-<kind>-<key>          a note, see [Store.WriteNote]
//	push-<random>              blobs that somebody is about to refer to
//	collecting                 somebody collects garbage
package shared

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/llmexport/llmexport/internal/blob"
	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/oci"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/s3"
)

const (
	// atOnce is the number of blobs that move at the same time.
	atOnce = 8
	// pause is the wait before a request is sent again for the first time: five tries take about half a minute, the time in which a
	// service starts again.
	pause = 2 * time.Second
	// every is the time between two offers of an entry under construction, unless Store.Every is set.
	every = 10 * time.Second
)

const (
	formatName = "format"
	format     = "llmexport shared store 1\n"
)

// Store is a shared store. Its methods are safe for concurrent use.
type Store struct {
	// Every is the least time between two offers of an entry under construction; 0 is ten seconds. Set it before anything is built.
	Every time.Duration

	blobs    blob.Store
	patience transfer.Options
	now      func() time.Time

	mu  sync.Mutex
	bad map[string]bool // texts by name and blobs by SHA-256 that have turned out to be damaged
}

// Open opens s3://bucket/prefix[?endpoint=URL&region=NAME], oci://registry/repository, or a directory, which is made if it is
// absent. It reads from the store once. A reference of another form is a [place.RefError].
func Open(ctx context.Context, ref string) (*Store, error) {
	blobs, err := openBlobs(ref, transfer.Options{Pause: pause})
	if err != nil {
		return nil, err
	}
	s := New(blobs)
	return s, s.begin(ctx)
}

// New returns a store without looking at it.
func New(blobs blob.Store) *Store {
	return &Store{blobs: blobs, patience: transfer.Options{Pause: pause}, now: time.Now, bad: map[string]bool{}}
}

// openBlobs opens what holds the bytes; only a directory is looked at.
func openBlobs(ref string, o transfer.Options) (blob.Store, error) {
	kind, rest, ok := strings.Cut(ref, "://")
	switch {
	case kind == "s3" && ok:
		return s3.OpenBlobs(rest, o)
	case kind == "oci" && ok:
		return oci.OpenBlobs(rest, o)
	case ok || ref == "":
		const forms = "%.300q is not a shared store: write s3://bucket/prefix, oci://registry/repository or a directory"
		return nil, &place.RefError{Err: fmt.Errorf(forms, ref)}
	}
	return blob.OpenDir(ref)
}

// begin checks that the store can be read and has a layout that is known.
func (s *Store) begin(ctx context.Context) error {
	text, err := s.blobs.Text(ctx, formatName, 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = []byte(format), s.blobs.SetText(ctx, formatName, []byte(format), nil)
	}
	if err == nil && string(text) != format {
		err = fmt.Errorf("it says %.60q, which this version does not know: %w", text, fault.ErrUnsupported)
	}
	if err != nil {
		return fmt.Errorf("the shared store %s cannot be used: %w", s, err)
	}
	return nil
}

// String is the reference of the store, without secrets.
func (s *Store) String() string { return s.blobs.String() }

// condemn remembers that a text or a blob is damaged, so that an offer replaces it.
func (s *Store) condemn(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range names {
		s.bad[n] = true
	}
}

// condemned reports whether a text or a blob is known to be damaged.
func (s *Store) condemned(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bad[name]
}

// replaced forgets that a text or a blob was damaged.
func (s *Store) replaced(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.bad, name)
}

// random returns a name that nobody else has.
func random() string { return strings.ToLower(rand.Text()) }
