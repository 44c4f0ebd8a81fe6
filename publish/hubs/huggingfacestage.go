package hubs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxInline bounds the total size in bytes of files in a commit request because the hub stores them in git.
const maxInline = 64 << 20

// stagedHuggingFace is a package whose large files are in storage.
type stagedHuggingFace struct {
	h       HuggingFace
	api     *huggingFaceAPI
	state   repoState
	created bool // whether this run created the repository
	changes repoChanges
	lfs     map[string]bool // which of the sent files are in storage
	freight *place.Freight
	title   string
	about   string
	receipt place.Receipt

	done      string // commit of Commit
	gated     bool   // whether Commit changed the access to the files
	branched  bool   // whether Commit created the branch
	tagged    bool   // whether Commit created the tag
	committed bool
}

// Stage implements Store.
func (h HuggingFace) Stage(ctx context.Context, p place.Package) (_ place.Staged, err error) {
	api, err := h.connect()
	if err != nil {
		return nil, err
	}
	s := &stagedHuggingFace{h: h, api: api, lfs: map[string]bool{}}
	f, err := place.FreightOf(p)
	if err != nil {
		return nil, err
	}
	s.freight = f
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if _, ok := f.Find(attributesFile); ok {
		return nil, fmt.Errorf("a package with %s cannot be published to a hub: %w", attributesFile, tensor.ErrUnsupported)
	}
	if err := api.whoami(ctx); err != nil {
		return nil, err
	}
	if s.state, err = h.state(ctx, api); err != nil {
		return nil, err
	}
	if !s.state.exists {
		if err := s.create(ctx); err != nil {
			return nil, err
		}
	}
	if s.changes, err = compare(ctx, f.Files, s.state.files); err != nil {
		return nil, err
	}
	if err := s.state.tagFree(h.Tag, s.changes); err != nil {
		return nil, err
	}
	s.title, s.about = commitText(h.Message, p.Manifest, f.Sum)
	s.receipt = f.Receipt("hub", "", s.state.status(s.changes))
	if s.changes.none() {
		return s, nil
	}
	return s, s.upload(ctx)
}

// create creates the repository, private or gated from the beginning if it is to be.
func (s *stagedHuggingFace) create(ctx context.Context) error {
	made, err := s.api.create(ctx, s.h.Private)
	if err != nil {
		return err
	}
	if s.state, err = s.h.state(ctx, s.api); err != nil {
		return err
	}
	if !s.state.exists {
		return errors.New("the name is taken by a repository that the token cannot access")
	}
	if s.created = made; made {
		zerolog.Ctx(ctx).Info().Str("repo", s.h.Repo).Bool("private", s.h.Private).Msg("created the repository, which remains even if publishing fails")
	}
	if made && s.h.Gated != "" {
		return s.api.gate(ctx, s.h.Gated)
	}
	return nil
}

// commitText returns the commit message.
func commitText(title string, m *manifest.Manifest, sum digest.Digest) (string, string) {
	about := "Package " + m.Name + " " + string(sum) + "\n"
	if m.Source.Repo != "" {
		about += "Made from " + m.Source.Name() + "@" + m.Source.Revision + "\n"
	}
	about += "By " + m.Tool.Name + " " + m.Tool.Version + "\n"
	return cmp.Or(title, "Publish "+m.Name+" "+sum.Hex()[:12]), about
}

// upload sends large files to storage, and reads the others once, so that Commit cannot fail on them.
func (s *stagedHuggingFace) upload(ctx context.Context) error {
	revision := s.h.branch()
	if !s.state.branched {
		revision = mainBranch
	}
	var err error
	if s.lfs, err = s.api.preupload(ctx, revision, s.changes.send); err != nil {
		return err
	}
	var large []place.Cargo
	var names []string
	var inline int64
	for _, c := range s.changes.send {
		if s.lfs[c.Name] {
			large, names = append(large, c), append(names, c.Name)
			continue
		}
		if inline += c.Size; inline > maxInline {
			return fmt.Errorf("the hub requires more than %d bytes in git: %w", maxInline, tensor.ErrUnsupported)
		}
		b, err := c.ReadAll()
		if err != nil {
			return err
		}
		if c.Name == cardFile {
			if err := s.api.checkCard(ctx, b); err != nil {
				return err
			}
		}
	}
	if err := s.attributes(ctx, names); err != nil {
		return err
	}
	l := &lfs{http: s.api.http, o: s.api.o, batch: func(ctx context.Context, objects []place.Cargo) (map[string]*lfsUpload, error) {
		return s.api.batch(ctx, revision, objects)
	}}
	err = l.send(ctx, large)
	s.receipt.Uploaded = l.sent.Load()
	return err
}

// attributes adds the lines for large files to .gitattributes.
func (s *stagedHuggingFace) attributes(ctx context.Context, large []string) error {
	var have []byte
	if f, ok := s.state.files[attributesFile]; ok {
		var err error
		if have, err = s.api.file(ctx, s.state.commit, attributesFile, f, maxSmallFile); err != nil {
			return err
		}
	}
	if more := withAttributes(have, large); more != nil {
		s.changes.send = append(s.changes.send, place.Loaded(attributesFile, more))
	}
	return nil
}

func (s *stagedHuggingFace) Commit(ctx context.Context) (place.Receipt, error) {
	if !s.committed {
		if err := s.commit(ctx); err != nil {
			return place.Receipt{}, err
		}
		s.committed = true
	}
	return s.receipt, nil
}

func (s *stagedHuggingFace) commit(ctx context.Context) error {
	if s.h.Gated != "" && s.h.Gated != s.state.gated && !s.created {
		if err := s.api.gate(ctx, s.h.Gated); err != nil {
			return err
		}
		s.gated = true
	}
	if !s.state.branched && s.h.branch() != mainBranch {
		made, err := s.api.branch(ctx, s.h.branch(), s.state.commit)
		if err != nil {
			return err
		}
		s.branched, s.state.branched = made, true
	}
	if !s.changes.none() && s.done == "" {
		if err := s.send(ctx); err != nil {
			return err
		}
	}
	at := cmp.Or(s.done, s.state.commit)
	if err := s.tag(ctx, at); err != nil {
		return err
	}
	s.receipt.Ref = "hf://" + s.h.Repo + "@" + at
	s.receipt.URL = s.api.at(append(strings.Split(s.h.Repo, "/"), "tree", at)...).String()
	return nil
}

// send makes the commit.
func (s *stagedHuggingFace) send(ctx context.Context) (err error) {
	ops := []operation{opHeader(s.title, s.about, s.state.commit)}
	var inline int64
	for _, c := range s.changes.send {
		if s.lfs[c.Name] {
			ops = append(ops, opLFS(c.Name, c.SHA256, c.Size))
			continue
		}
		b, err := c.ReadAll()
		if err != nil {
			return err
		}
		ops = append(ops, opFile(c.Name, b))
		inline += c.Size
	}
	for _, name := range s.changes.Remove {
		ops = append(ops, opDelete(name))
	}
	s.done, err = s.apply(ctx, s.state.commit, ops, s.shows)
	if err == nil {
		s.receipt.Uploaded += inline
	}
	return err
}

// tag tags the commit, unless it has the tag.
func (s *stagedHuggingFace) tag(ctx context.Context, at string) error {
	if s.h.Tag == "" || s.state.tagged != "" || s.tagged {
		return nil
	}
	made, err := s.api.tag(ctx, s.h.Tag, at, s.title)
	if err != nil {
		return fmt.Errorf("commit %s is visible, without the tag %s: %w", at, s.h.Tag, err)
	}
	s.tagged = made
	if made {
		return nil
	}
	_, tags, err := s.api.refs(ctx)
	if err != nil {
		return err
	}
	if got := tags[s.h.Tag]; got != at {
		return fmt.Errorf("commit %s is visible, but somebody else has set the tag %s to commit %s", at, s.h.Tag, got)
	}
	return nil
}

// apply commits on top of parent, exactly once: if a response is lost, the branch is read, and shown reports whether it
// has the committed contents.
func (s *stagedHuggingFace) apply(ctx context.Context, parent string, ops []operation, shown func(map[string]repoFile) bool) (id string, err error) {
	err = transfer.Retry(ctx, "commit", slow(s.api.o), func(ctx context.Context, _ func(int)) (bool, error) {
		var err error
		id, err = s.api.commit(ctx, s.h.branch(), ops)
		again := (*transfer.Retryable)(nil)
		if err == nil || !errors.As(err, &again) && status(err) != http.StatusPreconditionFailed && !errors.Is(err, tensor.ErrCorrupt) {
			return false, err
		}
		now, ierr := s.api.info(ctx, s.h.branch())
		if ierr != nil && !noRevision(ierr) {
			return false, fmt.Errorf("it is unknown whether the commit succeeded: %w", errors.Join(err, ierr))
		}
		if now.commit == parent {
			return false, err
		}
		files, terr := s.api.tree(ctx, now.commit)
		if terr != nil {
			return false, fmt.Errorf("it is unknown whether the commit succeeded: %w", errors.Join(err, terr))
		}
		if !shown(files) {
			return false, fmt.Errorf("somebody else has committed %s on top of %s in the meantime, so the package is not visible; publish again: %w",
				now.commit, parent, errConflict)
		}
		id = now.commit
		return false, nil
	})
	return id, err
}

// errConflict is the error for a place that somebody else changed between Stage and Commit.
var errConflict = errors.New("the place has changed")

// shows reports whether a listing has everything that Commit sends and nothing that it removes.
func (s *stagedHuggingFace) shows(files map[string]repoFile) bool {
	for _, c := range s.changes.send {
		if c.Name == attributesFile {
			continue // the hub adds its own lines
		}
		f, ok := files[c.Name]
		if !ok || f.size != c.Size || s.lfs[c.Name] && f.sha256 != c.SHA256 {
			return false
		}
		if !s.lfs[c.Name] {
			if name, err := gitName(context.Background(), c); err != nil || name != f.git {
				return false
			}
		}
	}
	return !slices.ContainsFunc(s.changes.Remove, func(name string) bool { _, there := files[name]; return there })
}

// Revert implements Staged: another commit restores the previous contents. The history keeps both.
func (s *stagedHuggingFace) Revert(ctx context.Context) error {
	if s.tagged {
		if err := s.api.remove(ctx, "tag", s.h.Tag); err != nil {
			return fmt.Errorf("the package stays visible at the tag %s: %w", s.h.Tag, err)
		}
		s.tagged = false
	}
	switch {
	case s.branched:
		if err := s.api.remove(ctx, "branch", s.h.branch()); err != nil {
			return fmt.Errorf("the package stays visible in the branch %s: %w", s.h.branch(), err)
		}
		s.branched = false
	case s.done != "":
		if err := s.restore(ctx); err != nil {
			return fmt.Errorf("the package stays visible as commit %s: %w", s.done, err)
		}
	}
	s.done, s.committed = "", false
	if s.gated {
		if err := s.api.gate(ctx, s.state.gated); err != nil {
			return fmt.Errorf("the package was reverted, but readers must still accept terms (%s): %w", s.h.Gated, err)
		}
		s.gated = false
	}
	if s.created {
		return errors.New("the repository, created by this run, remains without the package")
	}
	return nil
}

// restore commits the previous files on top of ours.
func (s *stagedHuggingFace) restore(ctx context.Context) error {
	ops := []operation{opHeader("Revert \""+s.title+"\"", "The package could not be published everywhere.\n", s.done)}
	put := func(name string) error {
		f := s.state.files[name]
		if f.sha256 != "" {
			ops = append(ops, opLFS(name, f.sha256, f.size))
			return nil
		}
		b, err := s.api.file(ctx, s.state.commit, name, f, maxSmallFile)
		if err == nil {
			ops = append(ops, opFile(name, b))
		}
		return err
	}
	if err := s.changes.undo(s.state.files, put, func(name string) { ops = append(ops, opDelete(name)) }); err != nil {
		return err
	}
	_, err := s.apply(ctx, s.done, ops, func(files map[string]repoFile) bool {
		for name, f := range s.state.files {
			if files[name] != f && name != attributesFile {
				return false
			}
		}
		return len(files) <= len(s.state.files)+1
	})
	return err
}

// Close implements Staged. Files in storage remain for the next Stage; the hub removes them eventually.
func (s *stagedHuggingFace) Close() error { return s.freight.Close() }
