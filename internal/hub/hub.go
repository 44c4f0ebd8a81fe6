// Package hub makes the files of a checkpoint available in a local directory: [Resolve] takes a
// directory as it is, finds a snapshot in the Hugging Face cache, or downloads one into it; [Headers] does so without
// the weights, of which it reads the headers; and [HashFiles] gives the digests of what was found. Options come from
// the usual environment variables by [OptionsFromEnv] and [ModelScopeFromEnv].
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
// ModelScope's repositories lie there as models--modelscope--org--name, a name that no repository of Hugging Face can
// have. The store of blobs that huggingface_hub shares between repositories is used through its links.
//
// A file gets its name only after its size and digest are those that the hub lists, and a ref is
// written only when its snapshot is complete. The hub is not trusted with paths, and the token is sent
// to no host but the endpoint's. Only files that an export reads are downloaded: safetensors, their
// index, configuration, tokenizer, and the texts that a licence asks to keep. Of the safetensors those are fetched that
// the index names, and it is read before them.
//
// # Mirrors
//
// Bytes prove themselves by their digests, whoever sends them. So what is proved is what the list says, and the list
// is the endpoint's wherever it can be asked, or an earlier one of the same commit in the cache. Only if neither is
// there the list is a mirror's too. Then nothing vouches for it: a commit's name is a digest of its files, but no hub
// gives what lies between them and it (trees and the commit's head), so a mirror can list other files for a commit and
// send those. Such a list is used and not remembered; the next time the endpoint is asked, and what differs is fetched
// anew.
//
// # Another client
//
// The types of a repository's files are those of gomlx/go-huggingface (v0.4.0), and a test checks that its client finds in
// the cache what this package fetched. Transfers are our own, because that client reports a cut transfer as success, cannot
// resume and checks no digest. Its type of a whole repository is not used: it rejects the answer when one field that is not
// read here has another form, such as a card with two licences. See docs/dependencies.md.
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

// Ref says which checkpoint is meant: Path, or Repo at Revision.
type Ref struct {
	Repo     string // "org/name"
	Revision string // branch, tag or commit; empty is "main"
	Path     string // a local directory; Repo and Revision are empty then
}

func (r Ref) String() string {
	if r.Path != "" {
		return r.Path
	}
	return r.Repo + "@" + cmp.Or(r.Revision, "main")
}

// Options say where the hub and the cache are and how to talk to them. The zero value of each field but
// CacheDir is useful.
type Options struct {
	// Source is the hub: empty for Hugging Face's, or [ModelScope].
	Source string
	// Endpoint is the hub's base URL; empty is https://huggingface.co, or https://modelscope.cn.
	Endpoint string
	// Mirrors are base URLs of servers that are asked in their order when the endpoint cannot be reached, at most 4.
	// They are sent no token. See the package comment for what can be proved of them.
	Mirrors []string
	// Token is sent to the endpoint's scheme, host and port and to no other. It is never printed.
	Token string `json:"-"`
	// CacheDir is the hub cache, the directory that holds models--org--name.
	CacheDir string
	// NoLinks has snapshots hold files in place of symbolic links.
	NoLinks bool
	// Offline forbids any request.
	Offline bool
	// Client sends the requests; nil is one that all share. Redirects and retries are done here, its
	// CheckRedirect is not used. It should have no Timeout: that would end long downloads.
	Client *http.Client
	// Progress is told how many bytes of a file are here, for each file that is transferred, from its
	// start to its end. Calls do not overlap.
	Progress func(file string, done, total int64)
	// UserAgent names the program to the hub; empty is "llmexport".
	UserAgent string
	// Check, if not nil, is called with the snapshot once its small files are in Dir and before anything of the weights is
	// asked for. Its error ends the call.
	Check func(s *Snapshot) error
	// Parallel is the number of files on their way at once; 0 is 4.
	Parallel int
	// Stall is how long a connection may give nothing before it is tried anew; 0 is one minute.
	Stall time.Duration
	// MinSpeed is the number of bytes a second that a connection has to bring over a minute; 0 is 1000.
	MinSpeed int64
	// Ask is how long the hub may say nothing to a question that the cache can answer as well; 0 is ten seconds.
	Ask time.Duration

	// Pause is waited before the second try, and twice that before the third; 0 is one second.
	Pause time.Duration
}

// String leaves the token out.
func (o Options) String() string {
	return fmt.Sprintf("endpoint %s, cache %s, offline %t, token %t", o.Endpoint, o.CacheDir, o.Offline, o.Token != "")
}

// GoString leaves the token out.
func (o Options) GoString() string { return "hub.Options{" + o.String() + "}" }

// Snapshot is a checkpoint on disk.
type Snapshot struct {
	// Dir holds the files.
	Dir string
	// Repo and Revision, a commit hash, say where they came from; empty for a local directory.
	Repo, Revision string
	// Source is where Repo lives: empty for the Hugging Face hub, or [ModelScope].
	Source string
	// Gated is how the repository guards its files: "auto" or "manual" where its terms must be accepted,
	// empty where not, or where Listed is false.
	Gated string
	// Private is set for a repository that only its owner sees.
	Private bool
	// Listed tells that the hub has said Gated and Private. What another program left in the cache does not say it, so
	// the hub is asked if that is possible; ModelScope does not say it of models that are gated.
	Listed bool
	// Files lists what an export may read, sorted by name.
	Files []File

	// fetched is by name what was hashed as it came: [HashFiles] need not read it again as long as nobody has touched it.
	fetched map[string]memoEntry
	// unread are the files that [HashFiles] knows of an earlier process, see [Snapshot.Reread].
	unread []File
}

// ModelScope is the Source of repositories of modelscope.cn.
const ModelScope = "modelscope"

// File is one file of a snapshot.
type File struct {
	Name string `json:"name"` // within Snapshot.Dir, without directories
	Size int64  `json:"size"` // bytes
	// SHA256 is the digest in lower-case hex, as far as it is known: the hub knows it of large files.
	SHA256 string `json:"sha256,omitempty"`
}

// Resolve finds or fetches a checkpoint. A commit whose complete snapshot is in the cache is used
// without asking the hub, but for who may read it where that is not known (see Snapshot.Listed). A branch or tag is looked up; when the hub cannot be reached, or must not
// (Offline), what the cache holds of it is used if it has the configuration and all weights. Everything
// else is downloaded; a download that broke goes on where it ended.
//
// A wrong size or digest, or a file name that leads out of the snapshot, is fault.ErrCorrupt. A
// repository without safetensors is fault.ErrUnsupported. A [StatusError] tells what the hub refused.
// After an error, also of ctx, the cache may hold more verified files and parts of files than before, and no
// new ref.
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

// prepared is what Resolve and Headers begin with.
type prepared struct {
	revision string
	cache    *cache
	client   *client   // nil if nothing may be asked
	listing  *listing  // nil if the snapshot is there
	snapshot *Snapshot // complete, nil if it has to be fetched
}

// prepare finds a snapshot in the cache, or else fetches the small files of one; then it gives the weights that are to be
// read, too.
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

// find finds a snapshot in the cache, or else the list of the files that make it.
func find(ctx context.Context, ref Ref, o Options) (*prepared, error) {
	kind, ok := services[o.Source]
	if !ok {
		return nil, fmt.Errorf("source %.40q is no hub that is known", o.Source)
	}
	p := &prepared{revision: kind.branch(cmp.Or(ref.Revision, "main"))}
	if err := errors.Join(checkRepo(ref.Repo), checkRevision(p.revision)); err != nil {
		return nil, err
	}
	if o.Source != "" && !strings.Contains(ref.Repo, "/") {
		return nil, fmt.Errorf("repository %.200q is not of the form org/name", ref.Repo)
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
			return nil, fmt.Errorf("%w; and the cache does not help: %w", err, cacheErr)
		}
		zerolog.Ctx(ctx).Warn().Err(err).Str("repo", ref.Repo).Str("revision", s.Revision).
			Msg("the hub cannot be reached, the cached snapshot is used and may be old")
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

// keep takes an error of noting a snapshot. Notes only save requests later, so a cache that is read-only or full must not
// fail the run.
func (p *prepared) keep(ctx context.Context, err error) {
	if err != nil {
		zerolog.Ctx(ctx).Warn().Err(err).Str("repo", p.cache.repo).Msg("the cache cannot remember this snapshot")
	}
}

// small fetches all files but the weights, and gives the weights that are read. An index may name other shards than
// the hub lists: that is found here, before gigabytes are fetched.
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

// remember notes a complete snapshot. A list that a mirror gave is not kept: the endpoint shall be asked once it can be
// reached.
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

// fetch brings files into the cache, if there is room for them.
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
		return nil, fmt.Errorf("%s holds no file of a checkpoint: %w", dir, fs.ErrNotExist)
	}
	files = withoutDuplicates(files, func(f File) string { return f.Name })
	// A shard that is missing, or an index that is none, is for the reader to tell.
	if read, _, err := inIndex(dir, files); err == nil {
		files = read
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return files, nil
}

var errNoSafetensors = fmt.Errorf("holds no safetensors files: %w", fault.ErrUnsupported)
