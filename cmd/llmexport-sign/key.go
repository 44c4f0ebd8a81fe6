package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxKey bounds a key file in bytes.
const maxKey = 64 << 10

// Types of PEM blocks.
const (
	privateBlock = "PRIVATE KEY" // PKCS#8
	publicBlock  = "PUBLIC KEY"  // PKIX
)

// key signs with a private key from a file. It implements sign.Keypair of sigstore-go.
type key struct {
	signer  crypto.Signer
	details signature.AlgorithmDetails
	pem     []byte // of the public key
	hint    []byte
}

// readKey reads an Ed25519 or ECDSA P-256 key.
func readKey(path string) (*key, error) {
	block, err := readPEM(path, privateBlock)
	if err != nil {
		return nil, err
	}
	private, err := x509.ParsePKCS8PrivateKey(block)
	if err != nil {
		// The error of the parser could quote the key.
		return nil, fmt.Errorf("%s: not a PKCS#8 key: %w", path, tensor.ErrCorrupt)
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: not a signing key: %w", path, tensor.ErrUnsupported)
	}
	k, err := newKey(signer)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

func newKey(signer crypto.Signer) (*key, error) {
	details, err := algorithm(signer.Public())
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(signer.Public())
	if err != nil {
		return nil, err
	}
	return &key{signer, details, pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: der}), []byte(fingerprint(der))}, nil
}

// fingerprint returns the name of a key in bundles: the SHA-256 of its PKIX form in base64, as in sigstore-go.
func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// algorithm returns the signature algorithm for a key; other kinds of keys are tensor.ErrUnsupported.
func algorithm(public crypto.PublicKey) (signature.AlgorithmDetails, error) {
	switch p := public.(type) {
	case ed25519.PublicKey:
		return signature.GetAlgorithmDetails(protocommon.PublicKeyDetails_PKIX_ED25519)
	case *ecdsa.PublicKey:
		if p.Curve == elliptic.P256() {
			return signature.GetAlgorithmDetails(protocommon.PublicKeyDetails_PKIX_ECDSA_P256_SHA_256)
		}
		return signature.AlgorithmDetails{}, fmt.Errorf("ECDSA on curve %s is not supported, only P-256: %w", p.Curve.Params().Name, tensor.ErrUnsupported)
	}
	return signature.AlgorithmDetails{}, fmt.Errorf("keys of type %T are not supported, only Ed25519 and ECDSA P-256: %w", public, tensor.ErrUnsupported)
}

// readPublic reads a public key and returns it with its fingerprint.
func readPublic(path string) (signature.Verifier, string, error) {
	block, err := readPEM(path, publicBlock)
	if err != nil {
		return nil, "", err
	}
	public, err := x509.ParsePKIXPublicKey(block)
	if err != nil {
		return nil, "", fmt.Errorf("%s: not a PKIX public key: %w", path, tensor.ErrUnsupported)
	}
	if _, err := algorithm(public); err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	v, err := signature.LoadDefaultVerifier(public)
	return v, fingerprint(block), err
}

// readPEM returns the only block of a file, which must be of type kind.
func readPEM(path, kind string) ([]byte, error) {
	data, err := readBounded(path, maxKey)
	if err != nil {
		return nil, err
	}
	block, rest := pem.Decode(data)
	switch {
	case block == nil:
		return nil, fmt.Errorf("%s: no PEM key: %w", path, tensor.ErrUnsupported)
	case block.Type != kind:
		return nil, fmt.Errorf("%s: PEM of type %.60q instead of %q: %w", path, block.Type, kind, tensor.ErrUnsupported)
	case len(block.Headers) > 0 || func() bool { more, _ := pem.Decode(rest); return more != nil }():
		return nil, fmt.Errorf("%s: more than one plain key: %w", path, tensor.ErrUnsupported)
	}
	return block.Bytes, nil
}

func (k *key) GetHashAlgorithm() protocommon.HashAlgorithm { return k.details.GetProtoHashType() }

func (k *key) GetSigningAlgorithm() protocommon.PublicKeyDetails {
	return k.details.GetSignatureAlgorithm()
}

func (k *key) GetHint() []byte                  { return k.hint }
func (k *key) GetPublicKey() crypto.PublicKey   { return k.signer.Public() }
func (k *key) GetPublicKeyPem() (string, error) { return string(k.pem), nil }

func (k *key) GetKeyAlgorithm() string {
	if k.details.GetKeyType() == signature.ED25519 {
		return "ED25519"
	}
	return "ECDSA"
}

// SignData returns the signature and the signed data: a digest, or for Ed25519 the data themselves.
func (k *key) SignData(_ context.Context, data []byte) ([]byte, []byte, error) {
	hash := k.details.GetHashType()
	if hash != crypto.Hash(0) {
		h := hash.New()
		h.Write(data)
		data = h.Sum(nil)
	}
	sig, err := k.signer.Sign(rand.Reader, data, hash)
	return sig, data, err
}

func keygenCommand(flags *flag.FlagSet) action {
	kind := flags.String("type", "ecdsa", "`KIND` of the key: ecdsa, which is P-256, or ed25519")
	return func(_ context.Context, args []string, stdout io.Writer) error {
		var (
			signer crypto.Signer
			err    error
		)
		switch *kind {
		case "ecdsa":
			signer, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		case "ed25519":
			_, signer, err = ed25519.GenerateKey(rand.Reader)
		default:
			return exit.Usagef("--type must be ecdsa or ed25519, not %q", *kind)
		}
		if err != nil {
			return err
		}
		return writeKey(args[0], signer, stdout)
	}
}

// writeKey writes NAME.pub and NAME.key. It overwrites neither.
func writeKey(name string, signer crypto.Signer, stdout io.Writer) error {
	k, err := newKey(signer)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		return err
	}
	private := pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: der})
	if err := create(name+".pub", k.pem, 0o644); err != nil {
		return err
	}
	if err := create(name+".key", private, 0o600); err != nil {
		return errors.Join(err, os.Remove(name+".pub"))
	}
	_, err = fmt.Fprintf(stdout, "%s.key, %s.pub: key SHA256:%s\n", name, name, k.hint)
	return err
}

func create(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
