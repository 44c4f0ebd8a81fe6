package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/provenance"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Sign signs the verified package with an external program, so that the places receive it with its signature. The program is
// llmexport-sign or one with the same commands: sign DIR --out FILE, and verify DIR --bundle FILE. Its result is checked before
// anything is published: the bundle must contain the statement about this package, and the program must verify it.
type Sign struct {
	// Command is the program: a name in PATH, or a path relative to the recipe.
	Command string `json:"command,omitempty" jsonschema_description:"Program that signs; llmexport-sign if absent."`
	// Key and Public are the halves of a key. They are paths of files.
	Key    string `json:"key,omitempty" jsonschema_description:"File with the private key, relative to the recipe."`
	Public string `json:"public,omitempty" jsonschema_description:"File with the public key, which checks the signature; that of key with the extension .pub if absent."`
	// Keyless signs as the identity of the environment.
	Keyless bool `json:"keyless,omitempty" jsonschema_description:"Sign as the identity of GitHub Actions or of the token in SIGSTORE_ID_TOKEN; identity and statement become public."`
	// Identity, Issuer and TrustedRoot check a keyless signature.
	Identity    string `json:"identity,omitempty" jsonschema_description:"Identity that a keyless signature must have."`
	Issuer      string `json:"issuer,omitempty" jsonschema_description:"Issuer of that identity."`
	TrustedRoot string `json:"trusted_root,omitempty" jsonschema_description:"File with the trusted root of sigstore, relative to the recipe."`
}

// signProgram is the default program.
const signProgram = "llmexport-sign"

// String implements [pipeline.Stage].
func (*Sign) String() string { return "sign" }

// Skip implements [pipeline.Skipper].
func (s *Sign) Skip(r *Run) (string, bool) {
	if r.DryRun {
		return "a dry run signs nothing", true
	}
	return "the recipe signs nothing", *s == Sign{}
}

// Validate implements [pipeline.Validator]: everything that signing needs is there before anything is made.
func (s *Sign) Validate(_ context.Context, r *Run) error {
	if *s == (Sign{}) {
		return nil
	}
	sec := r.Recipe.Stages["sign"]
	err := check(sec,
		rule{(s.Key != "") == s.Keyless, "", "needs either key or keyless: true"},
		rule{s.Key == "" && s.Public != "", "public", "goes with key"},
		rule{s.Key != "" && s.Identity+s.Issuer+s.TrustedRoot != "", "", "identity, issuer and trusted_root go with keyless"},
		rule{s.Keyless && (s.Identity == "" || s.Issuer == "" || s.TrustedRoot == ""), "keyless",
			"needs identity, issuer and trusted_root, with which the signature is checked"},
	)
	if err != nil {
		return err
	}
	if _, err := s.program(r); err != nil {
		return sec.Errorf("command", "%v; install llmexport-sign, or name the program", err)
	}
	for _, file := range [][2]string{{"key", s.Key}, {"public", s.public()}, {"trusted_root", s.TrustedRoot}} {
		if file[1] == "" {
			continue
		}
		if info, err := os.Stat(r.Recipe.Resolve(file[1])); err != nil {
			return sec.Errorf(file[0], "%v", err)
		} else if !info.Mode().IsRegular() {
			return sec.Errorf(file[0], "%s is not a file", file[1])
		}
	}
	return nil
}

// public is the file of the public key; empty without a key.
func (s *Sign) public() string {
	if s.Public != "" || s.Key == "" {
		return s.Public
	}
	return strings.TrimSuffix(s.Key, filepath.Ext(s.Key)) + ".pub"
}

// program is the path of the signing program.
func (s *Sign) program(r *Run) (string, error) {
	name := s.Command
	if name == "" {
		name = signProgram
	}
	if filepath.Base(name) != name {
		name = r.Recipe.Resolve(name)
	}
	return exec.LookPath(name)
}

// maxKey bounds a public key in bytes.
const maxKey = 1 << 20

// Run implements [pipeline.Stage]. A signature is kept with the other results: most kinds differ from run to run, and places
// do not replace one by another unasked.
func (s *Sign) Run(ctx context.Context, r *Run) error {
	of := inputs{r.Verdict.Digest, s.Keyless, s.Identity, s.Issuer}
	if path := s.public(); path != "" {
		b, err := disk.ReadFile(r.Recipe.Resolve(path), maxKey)
		if err != nil {
			return err
		}
		of = append(of, string(digest.Of(b)))
	}
	var err error
	r.Signature, err = r.entry(ctx, "signature", of, func(p *pipeline.Partial) (digest.Digest, error) {
		return s.sign(ctx, r, filepath.Join(p.Dir, manifest.SignatureName))
	})
	if err == nil {
		zerolog.Ctx(ctx).Info().Str("digest", string(r.Verdict.Digest)).Msg("signed")
	}
	return err
}

// SignatureError is the error for a signature that is not one of the package by the wanted signer.
type SignatureError struct{ err error }

func (e *SignatureError) Error() string {
	return fmt.Sprintf("the signature is not usable, so nothing was published: %v", e.err)
}
func (e *SignatureError) Unwrap() error { return e.err }

// sign signs the package and checks the bundle in out.
func (s *Sign) sign(ctx context.Context, r *Run, out string) (digest.Digest, error) {
	dir := r.Package()
	by, check := []string{"--keyless"}, []string{"--identity", s.Identity, "--issuer", s.Issuer, "--trusted-root", r.Recipe.Resolve(s.TrustedRoot)}
	if !s.Keyless {
		by, check = []string{"--key", r.Recipe.Resolve(s.Key)}, []string{"--key", r.Recipe.Resolve(s.public())}
	}
	if err := s.call(ctx, r, append([]string{"sign", dir, "--out", out}, by...)); err != nil {
		return "", err
	}
	b, err := disk.ReadFile(out, manifest.MaxSignature)
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("the program has written none")
	}
	if err != nil {
		return "", &SignatureError{err}
	}
	signed, err := provenance.Signed(b)
	if err != nil {
		return "", &SignatureError{err}
	}
	m, statement, err := provenance.Of(ctx, dir)
	if err != nil {
		return "", err
	}
	if !bytes.Equal(signed, statement) || m.Digest != r.Verdict.Digest {
		return "", &SignatureError{fmt.Errorf("it is about something other than this package: %w", tensor.ErrCorrupt)}
	}
	if err := s.call(ctx, r, append([]string{"verify", dir, "--bundle", out}, check...)); err != nil {
		if ctx.Err() != nil {
			return "", err
		}
		return "", &SignatureError{err}
	}
	return digest.Of(b), nil
}

// maxOutput bounds what an error repeats of the output of the program, in bytes.
const maxOutput = 2000

// call runs the program. Its output is part of the error if it fails.
func (s *Sign) call(ctx context.Context, r *Run, args []string) error {
	program, err := s.program(r)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.CombinedOutput()
	switch text := strings.TrimSpace(string(out)); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case text == "":
		return fmt.Errorf("%s %s: %w", filepath.Base(program), args[0], err)
	default:
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[0], err, text[max(0, len(text)-maxOutput):])
	}
}
