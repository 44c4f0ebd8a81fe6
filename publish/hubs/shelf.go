package hubs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// channelBranch is the branch of a repository that has its channels: a file on main would be a commit after that of the
// package, and no tag would name the newest commit.
const channelBranch = "channels"

// shelf is a repository of Hugging Face, whose commits are packages. Its channels are a file on a branch of their own. A
// commit there names the one that was read, so that of two at the same time the hub rejects one, which is made again.
type shelf struct{ api *huggingFaceAPI }

// Shelf returns the repository.
func (h HuggingFace) Shelf() (place.Shelf, string, error) {
	api, err := h.connect()
	if err != nil {
		return nil, "", err
	}
	return shelf{api}, "", nil
}

// OpenShelf returns the repository org/name as a shelf.
func OpenShelf(rest string, po place.OpenOptions) (place.Shelf, error) {
	if err := hub.CheckRepo(rest); err != nil {
		return nil, &place.RefError{Err: err}
	}
	o, err := hub.OptionsFromEnv()
	if err != nil {
		return nil, err
	}
	o.Client, o.UserAgent = po.HTTP, po.UserAgent
	api, err := newHuggingFaceAPI(o, rest, po.Transfer)
	return shelf{api}, err
}

func (s shelf) String() string { return "hf://" + s.api.repo }

// channels is the state of the branch.
type channels struct {
	commit string // empty if there is no branch
	file   bool   // whether the branch has an index
	channel.Index
}

// read reads the branch. A repository that does not exist has no channels.
func (s shelf) read(ctx context.Context) (c channels, err error) {
	info, err := s.api.info(ctx, channelBranch)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	c.commit = info.commit
	b, err := s.api.http.ReadFile(ctx, "read "+channel.FileName, s.api.resolve(c.commit, channel.FileName), channel.MaxSize, s.api.o)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		c.file = true
		c.Index, err = channel.Parse(b)
	}
	return c, err
}

func (s shelf) Channels(ctx context.Context) ([]string, error) {
	c, err := s.read(ctx)
	return slices.Sorted(maps.Keys(c.Index)), err
}

func (s shelf) History(ctx context.Context, name string) (channel.History, error) {
	c, err := s.read(ctx)
	return c.Index[name], err
}

// Ready implements place.Shelf: branches and tags hide channels of their names.
func (s shelf) Ready(ctx context.Context, name string) error {
	if name == channelBranch || name == mainBranch {
		return fmt.Errorf("%s is a branch; choose another name for the channel", name)
	}
	branches, tags, err := s.api.refs(ctx)
	if errors.Is(err, fs.ErrNotExist) { // the repository will be created
		return nil
	}
	if err != nil {
		return err
	}
	if branches[name] != "" || tags[name] != "" {
		return fmt.Errorf("the repository has a branch or tag %s; choose another name for the channel", name)
	}
	_, err = s.read(ctx)
	return err
}

func (s shelf) Update(ctx context.Context, name string, change func(channel.History) (channel.History, error)) error {
	return place.Collide(ctx, func() error {
		c, err := s.read(ctx)
		if err != nil {
			return err
		}
		was := c.Index[name]
		now, err := change(was)
		if err != nil || now.Equal(was) {
			return err
		}
		if c.Index == nil {
			c.Index = channel.Index{}
		}
		c.Index[name] = now
		return s.write(ctx, c, "Move channel "+name)
	})
}

// write commits the index on top of the state that was read.
func (s shelf) write(ctx context.Context, c channels, title string) error {
	b, err := c.Index.Marshal()
	if err != nil {
		return err
	}
	ops := []operation{opFile(channel.FileName, b)}
	if c.commit == "" {
		var removed []operation
		if c.commit, removed, err = s.begin(ctx); err != nil {
			return err
		}
		ops = append(ops, removed...)
	}
	_, err = s.api.commit(ctx, channelBranch, append([]operation{opHeader(title, "", c.commit)}, ops...))
	again := (*transfer.Retryable)(nil)
	if err == nil || !errors.As(err, &again) && status(err) != http.StatusPreconditionFailed && !errors.Is(err, tensor.ErrCorrupt) {
		return err
	}
	// The response may have been lost, or somebody else has committed.
	now, rerr := s.read(ctx)
	if rerr != nil {
		return fmt.Errorf("it is unknown whether the channel has moved: %w", errors.Join(err, rerr))
	}
	if text, merr := now.Index.Marshal(); now.file && merr == nil && string(text) == string(b) {
		return nil
	}
	if errors.As(err, &again) || now.commit != c.commit {
		return place.ErrCollision
	}
	return err
}

// begin creates the branch, and returns its commit and the removal of the files that it begins with. If somebody else has
// created it, its files stay.
func (s shelf) begin(ctx context.Context) (commit string, removed []operation, err error) {
	start, err := s.api.info(ctx, mainBranch)
	if err != nil {
		return "", nil, err
	}
	made, err := s.api.branch(ctx, channelBranch, start.commit)
	if err != nil {
		return "", nil, err
	}
	if !made {
		return "", nil, place.ErrCollision
	}
	files, err := s.api.tree(ctx, start.commit)
	if err != nil {
		return "", nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name != attributesFile {
			removed = append(removed, opDelete(name))
		}
	}
	return start.commit, removed, nil
}

func (s shelf) At(r place.Receipt) string {
	_, at, _ := strings.Cut(r.Ref, "@")
	return at
}

func (s shelf) Open(ctx context.Context, p channel.Package, _ place.OpenOptions) (place.Origin, error) {
	if !gitID.MatchString(p.At) {
		return nil, fmt.Errorf("%.80q is not a commit: %w", p.At, tensor.ErrCorrupt)
	}
	if _, err := s.api.info(ctx, p.At); err != nil {
		return nil, fmt.Errorf("%s@%s: %w", s.api.repo, p.At, err)
	}
	return huggingFaceOrigin{s.api, p.At}, nil
}
