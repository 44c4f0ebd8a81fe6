package dir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

// revertDirs publishes to a directory and to a place that fails.
func revertDirs(ctx context.Context, target string, p place.Package, step func(string) error) (err error) {
	s, err := Place{Path: target, Replace: true, step: step}.Stage(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, err := s.Commit(ctx); err != nil {
		return err
	}
	return errors.Join(syscall.ENOSPC, s.Revert(ctx))
}

// TestRevertKilled ends the process at every step of a publication that is reverted. The target is one of the
// packages or absent, and the next run ends as if nothing had happened.
func TestRevertKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	one, two := placetest.Package(t, "one"), placetest.Package(t, "two")
	staged := filepath.Join(t.TempDir(), "two")
	placetest.Publish(t, Place{Path: staged}, two)
	var list []string
	target := filepath.Join(t.TempDir(), "out")
	placetest.Publish(t, Place{Path: target}, one)
	if err := revertDirs(t.Context(), target, two, func(a string) error { list = append(list, a); return nil }); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	placetest.Want(t, target, one)
	from := slices.Index(list, "move aside")
	if !slices.Contains(list, "move out") || !slices.Contains(list, "move back") || from < 0 {
		t.Fatalf("steps %q", list)
	}
	for i := from; i < len(list); i++ {
		t.Run(list[i], func(t *testing.T) {
			target := filepath.Join(t.TempDir(), "out")
			placetest.Publish(t, Place{Path: target}, one)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), killTarget+"="+target, fmt.Sprintf("%s=%d", killStep, i+1), placetest.PackageEnv+"="+staged, killRevert+"=1")
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != killExit {
				t.Fatalf("exit code %d: %s", code, out)
			}
			if _, err := place.OpenVerified(t.Context(), target); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the target is damaged: %v", err)
			}
			placetest.Publish(t, Place{Path: target, Replace: true}, two)
			placetest.Want(t, target, two)
		})
	}
}
