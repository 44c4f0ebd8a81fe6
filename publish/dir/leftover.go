package dir

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/publish/manifest"
)

const (
	tmpMark     = ".tmp-"
	oldMark     = ".old-"
	pullMark    = ".pull-"
	suffixBytes = 8
)

// checkSpace is replaced by tests.
var checkSpace = disk.CheckSpace

func suffix() string {
	b := make([]byte, suffixBytes)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// marked reports whether name is that of a directory which this program made for base.
func marked(name, base, mark string) bool {
	s, ok := strings.CutPrefix(name, base+mark)
	if !ok || len(s) != hex.EncodedLen(suffixBytes) || strings.ToLower(s) != s {
		return false
	}
	_, err := hex.DecodeString(s)
	return err == nil
}

// repair finishes what killed runs left beside the target. The lock is held, so none of it is in use.
// What a run was building is removed, but keep, with which this one goes on. A package that was moved aside goes back when nothing took its
// place, and is removed when something did and replacing is allowed.
func (d Place) repair(ctx context.Context, target, keep string) error {
	parent, base := filepath.Split(target)
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	log := zerolog.Ctx(ctx)
	var olds []string
	for _, e := range entries {
		path := filepath.Join(parent, e.Name())
		switch {
		case !e.IsDir() || path == keep:
		case marked(e.Name(), base, pullMark):
			log.Info().Str("dir", e.Name()).Msg("removing what a pull of another package had begun")
			if err := os.RemoveAll(path); err != nil {
				log.Warn().Err(err).Msg("what a killed pull left could not be removed")
			}
		case marked(e.Name(), base, tmpMark):
			if err := os.RemoveAll(path); err != nil {
				log.Warn().Err(err).Msg("what a killed run left could not be removed")
			}
		case marked(e.Name(), base, oldMark):
			if _, err := manifest.Open(path); err == nil {
				olds = append(olds, path)
			}
		}
	}
	if len(olds) == 0 {
		return nil
	}
	_, err = os.Lstat(target)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(olds) > 1:
		return fmt.Errorf("is absent, and %d packages that were moved aside from it exist, %s first; rename one back or remove them", len(olds), filepath.Base(olds[0]))
	case errors.Is(err, fs.ErrNotExist):
		log.Info().Str("from", filepath.Base(olds[0])).Msg("put back a package that a killed run had moved aside")
		return os.Rename(olds[0], target)
	case err != nil:
		return err
	}
	if _, err := manifest.Open(target); err != nil || !d.Replace {
		return nil
	}
	for _, old := range olds {
		if err := d.discard(old, target); err != nil {
			log.Warn().Err(err).Msg("a replaced package could not be removed")
		}
	}
	return nil
}

// discard removes a replaced package. It is renamed first, so that a package under its old name is always
// whole: one that a killed run had begun to remove is never put back.
func (d Place) discard(old, target string) error {
	tmp := target + tmpMark + suffix()
	if err := d.do("rename old", func() error { return os.Rename(old, tmp) }); err != nil {
		return err
	}
	return d.do("remove old", func() error { return os.RemoveAll(tmp) })
}
