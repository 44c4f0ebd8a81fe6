package dir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestShelfDir(t *testing.T) {
	base := t.TempDir()
	placetest.Shelf{
		Ctx:   t.Context(),
		Store: func(version string) place.Store { return Place{Path: filepath.Join(base, version)} },
		Open: func(ctx context.Context, name string, o place.OpenOptions) (place.Origin, error) {
			return Open(ctx, base+"@"+name, o)
		},
	}.Run(t)
	placetest.Write(t, filepath.Join(base, "."+channel.FileName+tmpMark+"0123456789abcdef"), "left by a killed run")
	s := shelf{base}
	if err := s.Update(t.Context(), "c0", func(h channel.History) (channel.History, error) { return h, nil }); err != nil {
		t.Fatal(err)
	}
	entries, err := filepath.Glob(filepath.Join(base, ".*"))
	if err != nil || len(entries) != 0 {
		t.Errorf("left: %q, %v", entries, err)
	}

	// An index that is damaged is neither believed nor replaced.
	placetest.Write(t, filepath.Join(base, channel.FileName), `{"version":1,"channels":{"stable":[]}}`)
	if _, err := s.History(t.Context(), "stable"); !errors.Is(err, tensor.ErrCorrupt) {
		t.Error(err)
	}
	called := false
	err = s.Update(t.Context(), "stable", func(h channel.History) (channel.History, error) { called = true; return h, nil })
	if !errors.Is(err, tensor.ErrCorrupt) || called || s.Ready(t.Context(), "stable") == nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(base, channel.FileName)); err != nil || len(b) != 38 {
		t.Errorf("%s, %v", b, err)
	}
}
