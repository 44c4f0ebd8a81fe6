package hubs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// modelScopeLarge is the size in bytes above which ModelScope's library sends a file to LFS storage.
const modelScopeLarge = 1 << 20

// modelScopeSuffixes are the extensions of files that go to LFS storage at any size.
var modelScopeSuffixes = []string{".7z", ".arrow", ".bin", ".bz2", ".ckpt", ".ftz", ".gz", ".h5", ".joblib", ".mlmodel", ".model", ".msgpack",
	".npy", ".npz", ".onnx", ".ot", ".parquet", ".pb", ".pickle", ".pkl", ".pt", ".pth", ".rar", ".safetensors", ".tar", ".tflite", ".tgz",
	".wasm", ".xz", ".zip", ".zst"}

// stagedModelScope is a package whose large files are in storage.
type stagedModelScope struct {
	m       ModelScope
	api     *modelScopeAPI
	state   modelScopeState
	created bool // whether this run created the repository
	changes repoChanges
	freight *place.Freight
	message string
	receipt place.Receipt

	done      string // commit of Commit
	tagged    bool   // whether Commit created the tag
	committed bool
}

// Stage implements Store.
func (m ModelScope) Stage(ctx context.Context, p place.Package) (_ place.Staged, err error) {
	api, err := m.connect()
	if err != nil {
		return nil, err
	}
	f, err := place.FreightOf(p)
	if err != nil {
		return nil, err
	}
	s := &stagedModelScope{m: m, api: api, freight: f}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if slices.ContainsFunc(f.Files, func(c place.Cargo) bool { return c.Name == attributesFile || c.Name == modelScopeFile }) {
		return nil, fmt.Errorf("a package with %s or %s cannot be published to ModelScope: %w", attributesFile, modelScopeFile, tensor.ErrUnsupported)
	}
	if s.state, err = m.state(ctx, api); err != nil {
		return nil, err
	}
	if !s.state.exists {
		if s.created, err = api.create(ctx, m.Private, cmp.Or(p.Manifest.Source.License, "other")); err != nil {
			return nil, err
		}
		if s.created {
			zerolog.Ctx(ctx).Info().Str("repo", m.Repo).Bool("private", m.Private).Msg("created the repository, which remains even if publishing fails")
		}
		if s.state, err = m.state(ctx, api); err != nil {
			return nil, err
		}
		if !s.state.exists {
			return nil, errors.New("the name is taken by a repository that the token cannot access")
		}
	}
	if s.changes, err = compare(ctx, f.Files, s.state.files); err != nil {
		return nil, err
	}
	if err := s.state.tagFree(m.Tag, s.changes); err != nil {
		return nil, err
	}
	title, about := commitText(m.Message, p.Manifest, f.Sum)
	s.message = title + "\n\n" + about
	s.receipt = f.Receipt("modelscope", "", s.state.status(s.changes))
	return s, s.upload(ctx)
}

// isLarge reports whether a file goes to LFS storage, which ModelScope leaves to the client.
func isLarge(c place.Cargo) bool {
	return c.Size > modelScopeLarge || c.Size > 0 && slices.Contains(modelScopeSuffixes, strings.ToLower(path.Ext(c.Name)))
}

// upload sends large files to storage, and reads the others once, so that Commit cannot fail on them.
func (s *stagedModelScope) upload(ctx context.Context) error {
	var large []place.Cargo
	for _, c := range s.changes.send {
		if isLarge(c) {
			large = append(large, c)
		} else if _, err := c.ReadAll(); err != nil {
			return err
		}
	}
	l := &lfs{http: s.api.http, o: s.api.o, batch: s.api.batch, accept: s.api.stored}
	err := l.send(ctx, large)
	s.receipt.Uploaded = l.sent.Load()
	return err
}

func (s *stagedModelScope) Commit(ctx context.Context) (place.Receipt, error) {
	if !s.committed {
		if err := s.commit(ctx); err != nil {
			return place.Receipt{}, err
		}
		s.committed = true
	}
	return s.receipt, nil
}

func (s *stagedModelScope) commit(ctx context.Context) (err error) {
	if !s.changes.none() && s.done == "" {
		var actions []modelScopeAction
		var inline int64
		for _, c := range s.changes.send {
			if isLarge(c) {
				actions = append(actions, putLFS(c.Name, c.SHA256, c.Size))
				continue
			}
			b, err := c.ReadAll()
			if err != nil {
				return err
			}
			actions = append(actions, putInGit(c.Name, b))
			inline += c.Size
		}
		for _, name := range s.changes.Remove {
			actions = append(actions, takeAway(name))
		}
		if s.done, err = s.apply(ctx, s.state.commit, s.message, actions, s.wanted()); err != nil {
			return err
		}
		s.receipt.Uploaded += inline
	}
	at := cmp.Or(s.done, s.state.commit)
	if s.m.Tag != "" && s.state.tagged == "" && !s.tagged {
		if err := s.api.tag(ctx, s.m.Tag, at); err != nil {
			return fmt.Errorf("commit %s is visible, without the tag %s: %w", at, s.m.Tag, err)
		}
		s.tagged = true
	}
	s.receipt.Ref = "ms://" + s.m.Repo + "@" + at
	s.receipt.URL = s.api.http.Home.JoinPath("models", s.m.Repo).String()
	return nil
}

// wanted returns the contents of the repository after the commit.
func (s *stagedModelScope) wanted() map[string]repoFile {
	files := map[string]repoFile{}
	for name, f := range s.state.files {
		if !slices.Contains(s.changes.Remove, name) {
			files[name] = f
		}
	}
	for _, c := range s.changes.send {
		files[c.Name] = repoFile{size: c.Size, sha256: c.SHA256}
	}
	return files
}

// apply commits if the branch is still at parent, and checks that the branch then has the committed contents, which is
// also the case if the response to an earlier try was lost.
func (s *stagedModelScope) apply(ctx context.Context, parent, message string, actions []modelScopeAction, want map[string]repoFile) (id string, err error) {
	err = transfer.Retry(ctx, "commit", slow(s.api.o), func(ctx context.Context, _ func(int)) (bool, error) {
		now, err := s.api.list(ctx, s.m.branch())
		if err != nil {
			return false, err
		}
		if now.commit != parent {
			if id = now.commit; sameFiles(now.files, want) {
				return false, nil
			}
			return false, fmt.Errorf("somebody else has committed %s on top of %s in the meantime, so the package is not visible; publish again: %w",
				now.commit, parent, errConflict)
		}
		if err := s.api.commit(ctx, s.m.branch(), message, actions); err != nil {
			return false, err
		}
		if now, err = s.api.list(ctx, s.m.branch()); err != nil {
			return false, fmt.Errorf("the commit was made and cannot be read: %w", err)
		}
		if id = now.commit; !sameFiles(now.files, want) {
			return false, fmt.Errorf("after the commit, the branch %s at %s does not have the committed contents: %w", s.m.branch(), id, tensor.ErrCorrupt)
		}
		return false, nil
	})
	return id, err
}

// sameFiles compares a listing with the expected one, without the files that the service changes itself.
func sameFiles(files, want map[string]repoFile) bool {
	for name, f := range want {
		if files[name] != f && name != attributesFile {
			return false
		}
	}
	return len(foreign(files, func(name string) bool {
		_, ok := want[name]
		return ok || name == attributesFile || name == modelScopeFile
	})) == 0
}

// Revert implements Staged: another commit restores the previous contents. A tag of Commit stays, because ModelScope
// has no API to delete one.
func (s *stagedModelScope) Revert(ctx context.Context) error {
	var errs []error
	if s.done != "" {
		if err := s.restore(ctx); err != nil {
			errs = append(errs, fmt.Errorf("the package stays visible as commit %s: %w", s.done, err))
		} else {
			s.done, s.committed = "", false
		}
	}
	if s.tagged {
		errs = append(errs, fmt.Errorf("the package stays visible at the tag %s; delete the tag in the browser", s.m.Tag))
	}
	if s.created {
		errs = append(errs, errors.New("the repository, created by this run, remains"))
	}
	return errors.Join(errs...)
}

func (s *stagedModelScope) restore(ctx context.Context) error {
	var actions []modelScopeAction
	put := func(name string) error {
		f := s.state.files[name]
		if !s.state.inGit[name] {
			actions = append(actions, putLFS(name, f.sha256, f.size))
			return nil
		}
		b, err := s.api.read(ctx, s.state.commit, name, f, maxSmallFile)
		if err == nil {
			actions = append(actions, putInGit(name, b))
		}
		return err
	}
	if err := s.changes.undo(s.state.files, put, func(name string) { actions = append(actions, takeAway(name)) }); err != nil {
		return err
	}
	_, err := s.apply(ctx, s.done, "Revert: the package could not be published everywhere", actions, s.state.files)
	return err
}

func (s *stagedModelScope) Close() error { return s.freight.Close() }
