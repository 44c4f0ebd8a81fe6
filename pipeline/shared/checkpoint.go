package shared

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/pipeline"
)

// Checkpoint is what a hub has said of a revision of a repository whose files are in the store.
type Checkpoint struct {
	Commit  string `json:"commit"`
	Gated   string `json:"gated,omitempty"`
	Private bool   `json:"private,omitempty"`
	Listed  bool   `json:"listed,omitempty"` // the hub has reported both
}

// key names things about a list of strings.
func key(of ...string) string {
	b, err := json.Marshal(of)
	if err != nil {
		panic("internal error: " + err.Error()) // strings always marshal
	}
	return digest.Of(b).Hex()[:24]
}

// Entry is the name of the entry with the files of a commit.
func Entry(source, repo, commit string) string { return "checkpoint-" + key(source, repo, commit) }

// OfferCheckpoint stores the files of a snapshot whose digests are known, and what a revision of its repository, and the commit
// itself, stand for.
func (s *Store) OfferCheckpoint(ctx context.Context, x *hub.Snapshot, files []hub.File, sum digest.Digest, revision string) error {
	name := Entry(x.Source, x.Repo, x.Revision)
	rec := &pipeline.Record{Digest: sum}
	for _, f := range files {
		rec.Files = append(rec.Files, pipeline.RecordedFile{Name: f.Name, Size: f.Size, SHA256: f.SHA256})
	}
	text, err := rec.Seal(name)
	if err != nil {
		return err
	}
	if err := s.offer(ctx, name, text, rec, x.Dir); err != nil {
		return err
	}
	c := Checkpoint{Commit: x.Revision, Gated: x.Gated, Private: x.Private, Listed: x.Listed}
	for _, r := range []string{x.Revision, revision} {
		was, found, err := s.Find(ctx, x.Source, x.Repo, r)
		if err != nil {
			return err
		}
		if found && was.Commit == c.Commit && was.Listed {
			c = was // a cache of another program does not tell who may read the repository
		}
		// The time of the note is that of its last use.
		if err := WriteNote(ctx, s, revisionNote(x.Source, x.Repo, r), c, name); err != nil {
			return err
		}
	}
	return nil
}

func revisionNote(source, repo, revision string) string {
	return "revision-" + key(source, repo, revision)
}

// Find returns what a revision of a repository was when its files were stored last, and reports whether they are in the store.
func (s *Store) Find(ctx context.Context, source, repo, revision string) (c Checkpoint, found bool, err error) {
	found, err = ReadNote(ctx, s, revisionNote(source, repo, revision), &c)
	return c, found, err
}

// Stored returns the source of a repository's files for [hub.Options]: those that the store has need not be downloaded from a hub.
func (s *Store) Stored(source, repo string) func(ctx context.Context, commit string, f hub.File) *hub.Copy {
	var mu sync.Mutex
	records := map[string]map[string]pipeline.RecordedFile{}
	return func(ctx context.Context, commit string, f hub.File) *hub.Copy {
		mu.Lock()
		defer mu.Unlock()
		files, ok := records[commit]
		if !ok {
			files = map[string]pipeline.RecordedFile{}
			_, rec, err := s.record(ctx, Entry(source, repo, commit))
			if err != nil {
				zerolog.Ctx(ctx).Debug().Err(err).Msg("the shared store is not asked for this checkpoint")
			} else if rec != nil {
				for _, x := range rec.Files {
					files[x.Name] = x
				}
			}
			records[commit] = files
		}
		b := transfer.Blob{Size: f.Size, SHA256: f.SHA256}
		if b.SHA256 == "" {
			b.SHA256 = files[f.Name].SHA256
		}
		if b.SHA256 == "" {
			return nil
		}
		if there, err := s.blobs.Has(ctx, b); !there || err != nil {
			return nil
		}
		return &hub.Copy{Open: s.blobs.Range(b), Failed: func(err error) {
			if damaged(err) {
				s.condemn(b.SHA256, Entry(source, repo, commit))
			}
		}}
	}
}
