// Package hub makes the files of a checkpoint available in a local directory. [Resolve] accepts a directory as it is, finds a
// snapshot in the Hugging Face cache, or downloads one into it. [Headers] does the same but reads only the headers of the
// weights. [HashFiles] computes the digests of the files. [OptionsFromEnv] and [ModelScopeFromEnv] read the usual environment
// variables.
//
// The cache is the one of the Python library huggingface_hub, which reads and writes the same files (2.4.0 does):
//
//	CACHEDIR.TAG                                 for programs that make backups
//	.locks/models--org--name/<blob>.lock         held (flock) while the blob is written
//	models--org--name/
//	  blobs/<sha256, or git's sha1>              content; <...>.llmexport-part while it is on its way
//	  snapshots/<commit>/config.json             link to ../../blobs/<...>
//	  refs/main, refs/refs/pr/1                  a commit
//	  .no_exist/<commit>/added_tokens.json       the commit has no such file
//	  trees/<commit>.json                        all files of the commit; theirs, and read only
//	  .llmexport/<commit>.json                   ours: the files of a complete snapshot; *.tmp while they are written
//
// ModelScope's repositories are stored as models--modelscope--org--name, a name that no Hugging Face repository can have. The
// store of blobs that huggingface_hub shares between repositories is used through its links.
//
// A file gets its name only after its size and digest match those that the hub lists, and a ref is written only when its
// snapshot is complete. Paths from the hub are not trusted, and the token is sent only to the endpoint's host. Only files that
// an export reads are downloaded: safetensors, their index, configuration, tokenizer, and the texts that a licence requires to
// be kept. The index is read first, and only the safetensors that it names are downloaded.
//
// # Mirrors
//
// Content is proved by its digest, regardless of the server that sends it. So the list of files is what has to be trusted. It
// comes from the endpoint whenever that can be reached, or from an earlier list of the same commit in the cache. Only if neither
// is available does a mirror's list count. Nothing vouches for that list: a commit's name is a digest of its files, but no hub
// serves the data in between (trees and the commit's header), so a mirror can list other files for a commit and send those. Such
// a list is used but not remembered; the next time the endpoint is asked, and files that differ are downloaded again.
//
// # Another client
//
// The types of a repository's files are those of gomlx/go-huggingface (v0.4.0), and a test checks that its client finds the
// files that this package downloaded in the cache. Transfers are our own, because that client reports a truncated transfer as
// success, cannot resume and checks no digest. Its type of a whole repository is not used either: it rejects the response when a
// field that is not needed here has another form, such as a card with two licences. See docs/dependencies.md.
package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/transfer"
)

// Ref names a checkpoint: Path, or Repo at Revision.
type Ref struct {
	Repo     string // "org/name"
	Revision string // branch, tag or commit; empty is "main"
	Path     string // a local directory; then Repo and Revision are empty
}

func (r Ref) String() string {
	if r.Path != "" {
		return r.Path
	}
	return r.Repo + "@" + cmp.Or(r.Revision, "main")
}

// Options set the hub, the cache and the behaviour of transfers. The zero value of each field but CacheDir is useful.
type Options struct {
	// Source is the hub: empty for Hugging Face's, or [ModelScope].
	Source string
	// Endpoint is the hub's base URL; empty is https://huggingface.co, or https://modelscope.cn.
	Endpoint string
	// Mirrors are base URLs of servers to ask, in order, when the endpoint cannot be reached; at most 4. They are sent no token.
	// See the package comment for how far they can be trusted.
	Mirrors []string
	// Token is sent only to the endpoint's scheme, host and port. It is never printed.
	Token string `json:"-"`
	// CacheDir is the hub cache, the directory that holds models--org--name.
	CacheDir string
	// NoLinks makes snapshots hold files instead of symbolic links.
	NoLinks bool
	// Offline forbids all requests.
	Offline bool
	// Client sends the requests; nil is a shared client. This package follows redirects and retries itself, so CheckRedirect is not
	// used. Client should have no Timeout, which would end long downloads.
	Client *http.Client
	// Progress is called with the number of bytes of a file that have been downloaded, for each transferred file, from its start to
	// its end. Calls do not overlap.
	Progress func(file string, done, total int64)
	// UserAgent names the program to the hub; empty is "llmexport".
	UserAgent string
	// Check, if not nil, is called with the snapshot once its small files are in Dir and before any weights are requested. Its
	// error ends the call.
	Check func(s *Snapshot) error
	// Stored, if not nil, returns another source of a file of a commit, or nil. Its bytes are compared with the digest that the hub
	// lists; a file that cannot be had there is downloaded from the hub.
	Stored func(ctx context.Context, commit string, f File) *Copy
	// Parallel is the number of simultaneous file downloads; 0 is 4.
	Parallel int
	// Stall is how long a connection may deliver nothing before the request is sent again; 0 is one minute.
	Stall time.Duration
	// MinSpeed is the least number of bytes a second that a connection must deliver over a minute; 0 is 1000.
	MinSpeed int64
	// Ask is how long to wait for the hub's answer if the cache has one too; 0 is ten seconds.
	Ask time.Duration

	// Pause is the wait before the second try, and twice that before the third; 0 is one second.
	Pause time.Duration
}

// String leaves the token out.
func (o Options) String() string {
	return fmt.Sprintf("endpoint %s, cache %s, offline %t, token %t", o.Endpoint, o.CacheDir, o.Offline, o.Token != "")
}

// GoString leaves the token out.
func (o Options) GoString() string { return "hub.Options{" + o.String() + "}" }

// Copy is a file that another store has.
type Copy struct {
	Open transfer.Range
	// Failed is called with the error if the file cannot be had.
	Failed func(err error)
}

// Snapshot is a checkpoint on disk.
type Snapshot struct {
	// Dir holds the files.
	Dir string
	// Repo and Revision, a commit hash, are the origin; empty for a local directory.
	Repo, Revision string
	// Source is the hub of Repo: empty for Hugging Face, or [ModelScope].
	Source string
	// Gated is "auto" or "manual" if users must accept the repository's terms; empty if not, or if Listed is false.
	Gated string
	// Private is set for a repository that only its owner can access.
	Private bool
	// Listed is set if the hub has reported Gated and Private. A snapshot left by another program does not contain them, so the hub
	// is asked if possible; ModelScope does not report whether models are gated.
	Listed bool
	// Files lists the files that an export may read, sorted by name.
	Files []File

	// fetched has, by name, files that were hashed during the download: [HashFiles] need not read them again unless they change.
	fetched map[string]memoEntry
	// unread are the files whose digests [HashFiles] took from an earlier process, see [Snapshot.Reread].
	unread []File
}

// ModelScope is the Source of repositories of modelscope.cn.
const ModelScope = "modelscope"

// File is one file of a snapshot.
type File struct {
	Name string `json:"name"` // within Snapshot.Dir, without directories
	Size int64  `json:"size"` // bytes
	// SHA256 is the digest in lower-case hex, if known: the hub lists it for large files.
	SHA256 string `json:"sha256,omitempty"`
}

// Resolve finds or downloads a checkpoint. A commit whose complete snapshot is in the cache is used without asking the hub,
// except to learn who may read it if that is unknown (see Snapshot.Listed). A branch or tag is looked up. If the hub cannot be
// reached, or Offline is set, the cached snapshot of the revision is used if it has the configuration and all weights. All other
// snapshots are downloaded; an interrupted download resumes where it stopped.
//
// A wrong size or digest, or a file name that leads out of the snapshot, is fault.ErrCorrupt. A repository without safetensors
// is fault.ErrUnsupported. A [StatusError] is a rejection by the hub. After an error, including that of ctx, the cache may hold
// more verified files and partial files than before, but no new ref.
func Resolve(ctx context.Context, ref Ref, o Options) (*Snapshot, error) {
	if ref.Path != "" {
		if ref.Repo != "" || ref.Revision != "" {
			return nil, fmt.Errorf("%s: a local directory has no repository and no revision, got %q and %q", ref.Path, ref.Repo, ref.Revision)
		}
		s, err := local(ref.Path)
		if err == nil && o.Check != nil {
			err = o.Check(s)
		}
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	s, err := resolve(ctx, ref, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	return s, nil
}

func local(dir string) (*Snapshot, error) {
	files, err := listDir(dir)
	if err != nil {
		return nil, err
	}
	return &Snapshot{Dir: dir, Files: files}, nil
}

// prepared is the common first part of Resolve and Headers.
type prepared struct {
	revision string
	cache    *cache
	client   *client   // nil if no request is allowed
	listing  *listing  // nil if the snapshot is cached
	snapshot *Snapshot // complete; nil if it has to be downloaded
}

// prepare finds a snapshot in the cache, or else downloads the small files of one and also returns the weights to read.
func prepare(ctx context.Context, ref Ref, o Options) (p *prepared, shards []remote, err error) {
	if p, err = find(ctx, ref, o); err != nil {
		return nil, nil, err
	}
	s := p.snapshot
	if s == nil {
		if shards, err = p.small(ctx); err != nil {
			return nil, nil, err
		}
		s = p.cache.snapshot(p.listing)
	}
	if o.Check != nil {
		err = o.Check(s)
	}
	return p, shards, err
}

// find finds a snapshot in the cache, or else lists the files that make it.
func find(ctx context.Context, ref Ref, o Options) (*prepared, error) {
	kind, ok := services[o.Source]
	if !ok {
		return nil, fmt.Errorf("source %.40q is not a known hub", o.Source)
	}
	p := &prepared{revision: kind.branch(cmp.Or(ref.Revision, "main"))}
	if err := errors.Join(checkRepo(ref.Repo), checkRevision(p.revision)); err != nil {
		return nil, err
	}
	if o.Source != "" && !strings.Contains(ref.Repo, "/") {
		return nil, fmt.Errorf("a repository is ORG/NAME, not %.200q", ref.Repo)
	}
	if o.CacheDir == "" {
		return nil, errors.New("no cache directory is set")
	}
	p.cache = newCache(o, ref.Repo)
	if err := p.cache.check(p.revision); err != nil {
		return nil, err
	}
	var recorded *listing
	if isCommit(p.revision) {
		recorded = p.cache.recorded(p.revision)
		if recorded != nil && (recorded.listed || o.Offline) {
			p.snapshot = p.cache.snapshot(recorded)
			return p, nil
		}
	}
	var err error
	if o.Offline {
		p.snapshot, err = p.cache.offline(p.revision)
		return p, err
	}
	if p.client, err = newClient(o, ref.Repo); err != nil {
		return nil, err
	}
	if recorded != nil {
		if p.client.askAccess(ctx, recorded) {
			p.keep(ctx, p.cache.record(recorded))
		}
		p.snapshot = p.cache.snapshot(recorded)
		return p, nil
	}
	if isCommit(p.revision) {
		if p.listing = p.cache.tree(p.revision); p.listing != nil {
			p.client.askAccess(ctx, p.listing)
			return p, nil
		}
	}
	s, cacheErr := p.cache.offline(p.revision)
	patience := p.client.patience()
	if cacheErr == nil {
		patience = p.client.impatience()
	}
	p.listing, err = p.client.list(ctx, p.revision, patience)
	if again := (*transfer.Retryable)(nil); errors.As(err, &again) {
		if cacheErr != nil {
			return nil, &UnreachableError{Err: err, Cache: cacheErr}
		}
		zerolog.Ctx(ctx).Warn().Err(err).Str("repo", ref.Repo).Str("revision", s.Revision).
			Msg("the hub cannot be reached; using the cached snapshot, which may be outdated")
		p.snapshot = s
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	return p, p.cache.checkNotes(p.listing.commit)
}

func resolve(ctx context.Context, ref Ref, o Options) (*Snapshot, error) {
	p, shards, err := prepare(ctx, ref, o)
	if err != nil {
		return nil, err
	}
	if p.snapshot != nil {
		return p.snapshot, nil
	}
	if err := p.client.fetch(ctx, p.cache, p.listing.commit, shards); err != nil {
		return nil, err
	}
	p.keep(ctx, p.remember())
	return p.cache.snapshot(p.listing), nil
}

// keep logs an error of recording a snapshot. Records only save requests later, so a read-only or full cache must not fail the
// run.
func (p *prepared) keep(ctx context.Context, err error) {
	if err != nil {
		zerolog.Ctx(ctx).Warn().Err(err).Str("repo", p.cache.repo).Msg("cannot record this snapshot in the cache; the next run asks the hub again")
	}
}

// small downloads all files but the weights, and returns the weights to read. An index may name shards that the hub does not
// list: that is found here, before gigabytes are downloaded.
func (p *prepared) small(ctx context.Context) (shards []remote, err error) {
	l := p.listing
	if err := p.client.fetch(ctx, p.cache, l.commit, slices.DeleteFunc(slices.Clone(l.files), func(f remote) bool { return isShard(f.Name) })); err != nil {
		return nil, err
	}
	files, missing, err := inIndex(p.cache.snapshotDir(l.commit), l.files)
	if err != nil {
		return nil, err
	}
	if missing != "" {
		return nil, notListed(missing)
	}
	l.files = files
	return slices.DeleteFunc(slices.Clone(files), func(f remote) bool { return !isShard(f.Name) }), nil
}

// remember records a complete snapshot. A list from a mirror is not kept: the endpoint must be asked once it can be reached.
func (p *prepared) remember() error {
	l := p.listing
	p.cache.sweep(time.Now())
	err := p.cache.tag()
	if err == nil && !l.mirror {
		err = errors.Join(p.cache.record(l), p.cache.noteAbsent(l))
	}
	if err == nil && p.revision != l.commit {
		err = p.cache.writeRef(p.revision, l.commit)
	}
	return err
}

// fetch downloads files into the cache, if there is room for them.
func (c *client) fetch(ctx context.Context, ca *cache, commit string, files []remote) error {
	files = slices.DeleteFunc(slices.Clone(files), func(f remote) bool { return ca.has(commit, f) })
	need, counted := int64(0), map[string]bool{}
	for _, f := range files {
		if counted[f.Blob] || ca.is(ca.blob(f.Blob), f) {
			continue
		}
		counted[f.Blob] = true
		here := int64(0)
		if st, err := os.Lstat(ca.blob(f.Blob) + partName); err == nil {
			here = min(st.Size(), f.Size)
		}
		if need += f.Size - here; need < 0 {
			return fmt.Errorf("sizes of files do not add up: %w", fault.ErrCorrupt)
		}
	}
	if err := disk.CheckSpace(filepath.Join(ca.dir, "blobs"), need); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(c.o.Parallel, 4))
	for _, f := range files {
		g.Go(func() error {
			if err := c.download(ctx, ca, commit, f); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
			return ca.link(commit, f)
		})
	}
	return g.Wait()
}

// listDir lists the files of dir that an export may read.
func listDir(dir string) ([]File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if wanted(e.Name()) {
			names = append(names, e.Name())
		}
		for _, name := range []string{e.Name() + "/config.json", e.Name() + "/" + singleFile} {
			if !modulePattern.MatchString(name) && !moduleWeights.MatchString(name) {
				continue
			}
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				names = append(names, name)
			}
		}
	}
	templates, err := os.ReadDir(filepath.Join(dir, templatesDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range templates {
		if name := templatesDir + "/" + e.Name(); isTemplate(name) {
			names = append(names, name)
		}
	}
	var files []File
	for _, name := range names {
		st, err := os.Stat(filepath.Join(dir, name)) // through the links of a snapshot
		if err != nil {
			return nil, err
		}
		switch {
		case st.Mode().IsRegular():
			f := File{Name: name, Size: st.Size()}
			if err := f.checkSize(); err != nil {
				return nil, fmt.Errorf("%s: %w", dir, err)
			}
			files = append(files, f)
		case !st.IsDir() || isShard(name) || slices.Contains(fixedNames, name): // not a directory of licences
			return nil, disk.CheckRegular(filepath.Join(dir, name), st.Mode())
		}
	}
	if len(files) == 0 {
		return nil, noCheckpoint(dir)
	}
	files = withoutDuplicates(files, func(f File) string { return f.Name })
	// The reader reports a missing shard or an invalid index.
	if read, _, err := inIndex(dir, files); err == nil {
		files = read
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return files, nil
}

var errNoSafetensors = fmt.Errorf("holds no safetensors files: %w", fault.ErrUnsupported)
