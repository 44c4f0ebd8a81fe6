package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/provenance"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// trust is the trusted signer: a key, or a certified identity.
type trust struct {
	key                    string
	identity, issuer, root string
}

// flags defines the flags that name the signer, whose key is one of kinds.
func (t *trust) flags(flags *flag.FlagSet, kinds string) {
	flags.StringVar(&t.key, "key", "", "the signer's public key in `FILE`: PEM, PKIX, "+kinds)
	flags.StringVar(&t.identity, "identity", "", "the signer's `NAME`, exactly as in the certificate: an email address, or the URL of a workflow with its ref")
	flags.StringVar(&t.issuer, "issuer", "", "`URL` of the issuer of the identity, such as https://token.actions.githubusercontent.com")
	flags.StringVar(&t.root, "trusted-root", "", "`FILE` with the trusted authorities and logs, trusted_root.json of sigstore")
}

func verifyCommand(flags *flag.FlagSet) action {
	var t trust
	path := flags.String("bundle", "", "read the bundle from `FILE` instead of PACKAGE_DIR/"+manifest.SignatureName)
	t.flags(flags, "ECDSA P-256 or Ed25519")
	return func(ctx context.Context, args []string, stdout io.Writer) error {
		policy, err := t.policy("verify")
		if err != nil {
			return err
		}
		dir := args[0]
		b, err := readBundle(*path, dir)
		if err != nil {
			return verdict(err)
		}
		m, err := manifest.Open(dir)
		if err != nil {
			return verdict(err)
		}
		signer, err := policy.check(b, m)
		if err != nil {
			return err
		}
		// Last, because it reads gigabytes.
		if err := m.VerifyFiles(ctx, dir); err != nil {
			return verdict(err)
		}
		_, err = fmt.Fprintf(stdout, "verified: %s, %s, %d files\nsigned by: %s\n", m.Name, m.Digest, len(m.Files)+1, plain(signer))
		return err
	}
}

// policy is trust with its files read.
type policy struct {
	material root.TrustedMaterial
	options  []verify.VerifierOption
	signer   verify.PolicyOption
	name     string // of a key
	noFiles  bool   // the key signs whole messages, not digests
}

// policy reads the files of t. The command is for errors.
func (t trust) policy(command string) (*policy, error) {
	byName := t.identity != "" || t.issuer != "" || t.root != ""
	switch {
	case t.key != "" && byName:
		return nil, exit.Usagef("%s needs either --key, or --identity with --issuer and --trusted-root", command)
	case t.key != "":
		return keyPolicy(t.key)
	case t.identity == "" || t.issuer == "" || t.root == "":
		return nil, exit.Usagef("%s needs --key, or all of --identity, --issuer and --trusted-root: a signature is worthless if anybody could have made it", command)
	}
	return t.identityPolicy()
}

func keyPolicy(path string) (*policy, error) {
	v, name, err := readPublic(path)
	if err != nil {
		return nil, err
	}
	// The key given by the user is used, whatever name the bundle has for it.
	material := root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) {
		return root.NewExpiringKey(v, time.Time{}, time.Time{}), nil
	})
	_, whole := v.(*signature.ED25519Verifier)
	return &policy{material, []verify.VerifierOption{verify.WithNoObserverTimestamps()}, verify.WithKey(), "key SHA256:" + name, whole}, nil
}

// maxRoot bounds a trusted root in bytes.
const maxRoot = 4 << 20

func (t trust) identityPolicy() (*policy, error) {
	data, err := readBounded(t.root, maxRoot)
	if err != nil {
		return nil, err
	}
	material, err := root.NewTrustedRootFromJSON(data)
	if err != nil {
		return nil, fmt.Errorf("%s: not a trusted root: %w", t.root, err)
	}
	who, err := verify.NewShortCertificateIdentity(t.issuer, "", t.identity, "")
	if err != nil {
		return nil, exit.Usagef("--identity, --issuer: %v", err)
	}
	p := &policy{material: material, signer: verify.WithCertificateIdentity(who)}
	// A certificate is valid for some minutes: a log or authority must have witnessed the signature in that time.
	// Everything listed in the root is required; a bundle that leaves it out is weaker than the root promises.
	p.options = append(p.options, verify.WithObserverTimestamps(1))
	if len(material.RekorLogs()) > 0 {
		p.options = append(p.options, verify.WithTransparencyLog(1))
	}
	if len(material.CTLogs()) > 0 {
		p.options = append(p.options, verify.WithSignedCertificateTimestamps(1))
	}
	return p, nil
}

// check verifies the signature and that the signed statement is about the package, and returns the signer. Any failure
// is a verdict.
func (p *policy) check(b *bundle.Bundle, m *manifest.Manifest) (signer string, err error) {
	subjects, err := provenance.Subjects(m)
	if err != nil {
		return "", err
	}
	result, signer, err := p.verify(b, sumOf(subjects, manifest.FileName), "package")
	if err != nil {
		return "", err
	}
	if result.Statement == nil {
		return "", &verdictError{errors.New("signature: it is for a file, not for a package")}
	}
	if err := about(result.Statement, subjects); err != nil {
		return "", &verdictError{err}
	}
	return signer, nil
}

// verify checks that the bundle is a signature of a file with this SHA-256, or of a statement that names one, and
// returns the signer. An invalid signature is a verdict; what describes the expected subject.
func (p *policy) verify(b *bundle.Bundle, sum, what string) (result *verify.VerificationResult, signer string, err error) {
	v, err := verify.NewVerifier(p.material, p.options...)
	if err != nil {
		return nil, "", err
	}
	digest, err := hex.DecodeString(sum)
	if err != nil {
		return nil, "", err
	}
	result, err = v.Verify(b, verify.NewPolicy(verify.WithArtifactDigest("sha256", digest), p.signer))
	if err != nil {
		who := cmp.Or(p.name, "this identity")
		return nil, "", &verdictError{fmt.Errorf("signature: it is not a signature of %s for this %s: %w", who, what, err)}
	}
	if c := result.Signature.Certificate; c != nil {
		return result, fmt.Sprintf("%s, certified by %s", c.SubjectAlternativeName, c.Issuer), nil
	}
	return result, p.name, nil
}

func sumOf(subjects []provenance.Descriptor, name string) string {
	for _, d := range subjects {
		if d.Name == name {
			return d.Digest["sha256"]
		}
	}
	return ""
}

// about compares a statement with the subjects of the package's own one: the same files with the same SHA-256, no other
// files. The error names the first difference.
func about(s *intoto.Statement, want []provenance.Descriptor) error {
	if s.GetType() != provenance.StatementType || s.GetPredicateType() != provenance.PredicateType {
		return fmt.Errorf("the statement is %.80q of %.80q, not provenance: %w", s.GetPredicateType(), s.GetType(), tensor.ErrCorrupt)
	}
	got := map[string]string{}
	for _, d := range s.GetSubject() {
		if _, twice := got[d.GetName()]; twice {
			return fmt.Errorf("the statement names %.80q twice: %w", d.GetName(), tensor.ErrCorrupt)
		}
		got[d.GetName()] = d.GetDigest()["sha256"]
	}
	for _, d := range want {
		switch sum, ok := got[d.Name]; {
		case !ok:
			return fmt.Errorf("the statement does not name %s: %w", d.Name, tensor.ErrCorrupt)
		case sum != d.Digest["sha256"]:
			return fmt.Errorf("the statement is about a different %s: %w", d.Name, tensor.ErrCorrupt)
		}
		delete(got, d.Name)
	}
	for _, d := range s.GetSubject() {
		if _, left := got[d.GetName()]; left {
			return fmt.Errorf("the statement names %.80q, which is not in the package: %w", d.GetName(), tensor.ErrCorrupt)
		}
	}
	return nil
}
