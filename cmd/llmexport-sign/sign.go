package main

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"io"

	"github.com/sigstore/sigstore-go/pkg/sign"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/provenance"
)

func signCommand(flags *flag.FlagSet) action {
	var services services
	keyFile := flags.String("key", "", "sign with the private key in `FILE`: PEM, PKCS#8, ECDSA P-256 or Ed25519")
	keyless := flags.Bool("keyless", false, "sign as the identity of GitHub Actions or of the token in SIGSTORE_ID_TOKEN; the statement and the identity become public")
	out := flags.String("out", "", "write the bundle to `FILE` instead of PACKAGE_DIR/"+manifest.SignatureName)
	services.flags(flags)
	return func(ctx context.Context, args []string, stdout io.Writer) error {
		dir := args[0]
		if (*keyFile != "") == *keyless {
			return usagef("sign wants either --key or --keyless")
		}
		// All that can go wrong without the package is found before gigabytes are read.
		to, err := placeOf(*out, dir)
		if err != nil {
			return err
		}
		var (
			keys    sign.Keypair
			options sign.BundleOptions
		)
		if *keyless {
			keys, options, err = services.keyless(ctx)
		} else {
			keys, err = readKey(*keyFile)
		}
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
		options.Context = ctx
		b, err := sign.Bundle(&sign.DSSEData{Data: statement, PayloadType: provenance.PayloadType}, keys, options)
		if err != nil {
			return services.redact(err)
		}
		data, err := marshalBundle(b)
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
