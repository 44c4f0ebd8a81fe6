package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/sign"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// fileBundle is the suffix that turns the name of a file into that of its bundle.
const fileBundle = ".sigstore.json"

func signFileCommand(flags *flag.FlagSet) action {
	var signer signer
	signer.flags(flags, "ECDSA P-256", "the SHA-256 of every file")
	return func(ctx context.Context, files []string, stdout io.Writer) error {
		if err := signer.check("sign-file"); err != nil {
			return err
		}
		outputs, err := outputsOf(files)
		if err != nil {
			return err
		}
		key, options, err := signer.key(ctx)
		if err != nil {
			return err
		}
		if key.details.GetHashType() != crypto.SHA256 {
			return errWhole(signer.keyFile)
		}
		// All files are read before anything becomes public.
		sums := make([]string, len(files))
		for i, path := range files {
			f, err := manifest.HashFile(ctx, path)
			if err != nil {
				return err
			}
			sums[i] = f.SHA256
		}
		for i, sum := range sums {
			digest, err := hex.DecodeString(sum)
			if err != nil {
				return err
			}
			if outputs[i].data, err = signer.bundle(&sign.PlainData{Data: digest}, digestKey{key, digest}, options); err != nil {
				return fmt.Errorf("%s: %w", files[i], err)
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := writeAll(outputs); err != nil {
			return err
		}
		for i, o := range outputs {
			if _, err := fmt.Fprintf(stdout, "%s: sha256:%s\n", plain(o.path), sums[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

// errWhole rejects an Ed25519 key. Its signatures are over whole messages; Ed25519ph is over a digest, but over
// SHA-512.
func errWhole(path string) error {
	return fmt.Errorf("%s: an Ed25519 key does not sign files, because it does not sign a SHA-256; use an ECDSA P-256 key: %w",
		path, tensor.ErrUnsupported)
}

// digestKey signs a file given only its SHA-256. The content for sign.Bundle is the digest.
type digestKey struct {
	*key
	digest []byte
}

// SignData signs the file if data is its digest. Other data, which prove to Fulcio that we have the key, are hashed
// first.
func (k digestKey) SignData(ctx context.Context, data []byte) ([]byte, []byte, error) {
	if !bytes.Equal(data, k.digest) {
		return k.key.SignData(ctx, data)
	}
	sig, err := k.signer.Sign(rand.Reader, data, crypto.SHA256)
	return sig, data, err
}

// output is the bundle of a file, and the one that it replaces.
type output struct {
	place
	data, before []byte // before is nil if there was none
}

// outputsOf returns where the bundles of the files are written, and rejects arguments that cannot work.
func outputsOf(files []string) ([]output, error) {
	outputs := make([]output, len(files))
	given := map[string]string{} // by their absolute paths
	for i, path := range files {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		if _, twice := given[abs]; twice {
			return nil, exit.Usagef("%s is given twice", path)
		}
		given[abs] = path
		outputs[i].place = place{abs + fileBundle, abs + fileBundle + ".tmp", maxBundle}
	}
	for i, path := range files {
		o := &outputs[i]
		for _, taken := range []string{o.path, o.tmp} {
			if other, ok := given[taken]; ok {
				return nil, exit.Usagef("%s is where the bundle of %s is written; leave it out", other, path)
			}
		}
		info, err := os.Lstat(o.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case !info.Mode().IsRegular():
			return nil, fmt.Errorf("%s: not a regular file, and not replaced by a bundle", o.path)
		}
		if o.before, err = readBounded(o.path, maxBundle); err != nil {
			return nil, err
		}
	}
	return outputs, nil
}

// writeAll writes all bundles. On error, it restores the previous ones.
func writeAll(outputs []output) (err error) {
	staged, done := 0, 0
	defer func() {
		if err == nil {
			return
		}
		for _, o := range outputs[done:staged] {
			err = errors.Join(err, os.Remove(o.tmp))
		}
		for _, o := range outputs[:done] {
			err = errors.Join(err, o.undo())
		}
	}()
	for _, o := range outputs {
		if err := o.stage(o.data); err != nil {
			return err
		}
		staged++
	}
	for _, o := range outputs {
		if err := os.Rename(o.tmp, o.path); err != nil {
			return err
		}
		done++
	}
	return nil
}

func (o output) undo() error {
	if o.before == nil {
		return os.Remove(o.path)
	}
	return o.write(o.before)
}

func verifyFileCommand(flags *flag.FlagSet) action {
	var t trust
	t.flags(flags, "ECDSA P-256")
	return func(ctx context.Context, files []string, stdout io.Writer) error {
		policy, err := t.policy("verify-file")
		if err != nil {
			return err
		}
		if policy.noFiles {
			return errWhole(t.key)
		}
		// Every invalid file is reported, not only the first.
		var (
			errs   []error
			signer string
		)
		for _, path := range files {
			who, sum, err := policy.checkFile(ctx, path)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				errs = append(errs, verdict(err))
				continue
			}
			signer = who // the same for all files
			if _, err := fmt.Fprintf(stdout, "verified: %s, sha256:%s\n", plain(path), sum); err != nil {
				return err
			}
		}
		if len(errs) > 0 {
			return errors.Join(errs...)
		}
		_, err = fmt.Fprintf(stdout, "signed by: %s\n", plain(signer))
		return err
	}
}

// checkFile verifies the signature of a file, and returns the signer and the SHA-256.
func (p *policy) checkFile(ctx context.Context, path string) (signer, sum string, err error) {
	f, err := manifest.HashFile(ctx, path)
	if err != nil {
		return "", "", err
	}
	data, err := readBounded(path+fileBundle, maxBundle)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s is not signed: %w", path, err)
	}
	if err != nil {
		return "", "", err
	}
	b, err := parseFileBundle(data)
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", path+fileBundle, err)
	}
	if _, signer, err = p.verify(b, f.SHA256, "file"); err != nil {
		return "", "", fmt.Errorf("%s: %w", path, err)
	}
	return signer, f.SHA256, nil
}

// parseFileBundle parses an untrusted bundle of a file.
func parseFileBundle(data []byte) (*bundle.Bundle, error) {
	b, err := parseBundle(data)
	if err != nil {
		return nil, err
	}
	m := b.GetMessageSignature()
	if m == nil {
		return nil, fmt.Errorf("the bundle contains a statement, not the signature of a file: %w", tensor.ErrCorrupt)
	}
	// The verifier of sigstore-go compares only the digests, regardless of the name of their algorithm.
	if a := m.GetMessageDigest().GetAlgorithm(); a != protocommon.HashAlgorithm_SHA2_256 {
		return nil, fmt.Errorf("the signature is over %s of the file, not over SHA2_256: %w", a, tensor.ErrCorrupt)
	}
	return b, nil
}
