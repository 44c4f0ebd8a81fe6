package dir

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

// inspectSignature compares the signature of the same package in target with the wanted one, nil for any.
func (d Place) inspectSignature(o occupant, target string, signature []byte) (_ occupant, err error) {
	if o.signature, err = manifest.ReadSignature(target); err != nil {
		return occupant{}, err
	}
	if signature == nil || bytes.Equal(signature, o.signature) {
		return o, nil
	}
	if o.signature != nil && !d.Replace {
		return occupant{}, place.ErrSignedAlready
	}
	o.sign = signature
	return o, nil
}

// stageSignature writes the new signature of the package next to the target.
func (s *staged) stageSignature(ctx context.Context) error {
	s.signing = s.target + tmpMark + suffix()
	if err := s.d.do("make directory", func() error { return os.Mkdir(s.signing, 0o755) }); err != nil {
		return err
	}
	return s.writeSignature(ctx, s.was.sign)
}

func (s *staged) writeSignature(ctx context.Context, data []byte) error {
	return s.d.copyDurable(ctx, place.Loaded(manifest.SignatureName, data), filepath.Join(s.signing, manifest.SignatureName))
}

// showSignature renames the signature into the package.
func (s *staged) showSignature() error {
	if err := s.moveSignature(); err != nil {
		return err
	}
	if err := s.d.do("sync signature", func() error { return disk.SyncDir(s.target) }); err != nil {
		return errors.Join(err, s.revertSignature())
	}
	s.shown = true
	return nil
}

func (s *staged) moveSignature() error {
	in := filepath.Join(s.target, manifest.SignatureName)
	return s.d.do("move signature in", func() error { return os.Rename(filepath.Join(s.signing, manifest.SignatureName), in) })
}

// revertSignature restores the previous signature, or removes the new one if there was none.
func (s *staged) revertSignature() error {
	var err error
	if s.was.signature == nil {
		err = s.d.do("remove signature", func() error { return os.Remove(filepath.Join(s.target, manifest.SignatureName)) })
	} else if err = s.writeSignature(context.Background(), s.was.signature); err == nil {
		err = s.moveSignature()
	}
	if err != nil {
		return err
	}
	s.shown = false
	return s.d.do("sync signature back", func() error { return disk.SyncDir(s.target) })
}
