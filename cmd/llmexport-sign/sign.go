package main

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"io"

	"github.com/sigstore/sigstore-go/pkg/sign"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/provenance"
)

// signer is a key in a file, or an identity certified by services.
type signer struct {
	keyFile  string
	keyless  bool
	services services
}

// flags defines the flags that name the signer. Commands differ in the kinds of keys and in what a keyless signature
// makes public.
func (s *signer) flags(flags *flag.FlagSet, kinds, public string) {
	flags.StringVar(&s.keyFile, "key", "", "sign with the private key in `FILE`: PEM, PKCS#8, "+kinds)
	flags.BoolVar(&s.keyless, "keyless", false,
		"sign as the identity of GitHub Actions or of the token in SIGSTORE_ID_TOKEN; "+public+" and the identity become public")
	s.services.flags(flags)
}

// check requires that the flags name exactly one signer.
func (s *signer) check(command string) error {
	if (s.keyFile != "") == s.keyless {
		return exit.Usagef("%s needs either --key or --keyless", command)
	}
	return nil
}

// key returns the key to sign with, and the options of the bundle.
func (s *signer) key(ctx context.Context) (k *key, options sign.BundleOptions, err error) {
	if s.keyless {
		k, options, err = s.services.keyless(ctx)
	} else {
		k, err = readKey(s.keyFile)
	}
	options.Context = ctx
	return k, options, err
}

// bundle signs content and returns the encoded bundle.
func (s *signer) bundle(content sign.Content, keys sign.Keypair, options sign.BundleOptions) ([]byte, error) {
	b, err := sign.Bundle(content, keys, options)
	if err != nil {
		return nil, s.services.redact(err)
	}
	return marshalBundle(b)
}

func signCommand(flags *flag.FlagSet) action {
	var signer signer
	signer.flags(flags, "ECDSA P-256 or Ed25519", "the statement")
	out := flags.String("out", "", "write the bundle to `FILE` instead of PACKAGE_DIR/"+manifest.SignatureName)
	return func(ctx context.Context, args []string, stdout io.Writer) error {
		dir := args[0]
		if err := signer.check("sign"); err != nil {
			return err
		}
		// Errors that do not depend on the package are found before gigabytes are read.
		to, err := placeOf(*out, dir)
		if err != nil {
			return err
		}
		keys, options, err := signer.key(ctx)
		if err != nil {
			return err
		}
		m, statement, err := provenance.Of(ctx, dir)
		if err == nil {
			err = m.VerifyFiles(ctx, dir)
		}
		if err != nil {
			return verdict(err)
		}
		if err := to.holds(base64.StdEncoding.EncodedLen(len(statement))); err != nil { // before it becomes public
			return err
		}
		data, err := signer.bundle(&sign.DSSEData{Data: statement, PayloadType: provenance.PayloadType}, keys, options)
		if err != nil {
			return err
		}
		if err := to.holds(len(data)); err != nil {
			return err
		}
		if err := to.write(data); err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "%s: %s, %s, %d files\n", to.path, m.Name, m.Digest, len(m.Files)+1)
		return err
	}
}
