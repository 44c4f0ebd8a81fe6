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

// marked reports whether name is that of a directory which llmexport made for base.
func marked(name, base, mark string) bool {
	s, ok := strings.CutPrefix(name, base+mark)
	if !ok || len(s) != hex.EncodedLen(suffixBytes) || strings.ToLower(s) != s {
		return false
	}
	_, err := hex.DecodeString(s)
	return err == nil
}

// repair cleans up after killed runs next to the target. The lock is held, so nothing is in use. Unfinished directories
// are removed, except keep, which this run continues. A package that was moved aside is restored if nothing has taken
// its place, and otherwise removed if replacing is allowed.
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
			log.Info().Str("dir", e.Name()).Msg("removing an unfinished pull of another package")
			if err := os.RemoveAll(path); err != nil {
				log.Warn().Err(err).Msg("an unfinished pull could not be removed")
			}
		case marked(e.Name(), base, tmpMark):
			if err := os.RemoveAll(path); err != nil {
				log.Warn().Err(err).Msg("leftovers of a killed run could not be removed")
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
		return fmt.Errorf("is absent, and %d packages that were moved aside from it exist, %s first; rename one back or remove them", len(olds),
			filepath.Base(olds[0]))
	case errors.Is(err, fs.ErrNotExist):
		log.Info().Str("from", filepath.Base(olds[0])).Msg("restored a package that a killed run had moved aside")
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

// discard removes a replaced package. It is renamed first, so that a partly removed package is never restored.
func (d Place) discard(old, target string) error {
	tmp := target + tmpMark + suffix()
	if err := d.do("rename old", func() error { return os.Rename(old, tmp) }); err != nil {
		return err
	}
	return d.do("remove old", func() error { return os.RemoveAll(tmp) })
}
