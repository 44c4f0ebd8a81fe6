package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/digitorus/timestamp"
	"github.com/go-openapi/runtime"
	"github.com/sigstore/rekor/pkg/generated/models"
	"github.com/sigstore/rekor/pkg/types"
	_ "github.com/sigstore/rekor/pkg/types/dsse/v0.0.1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
)

// Who signs in these tests.
const (
	identity = "someone@example.com"
	issuer   = "https://issuer.example.com"
)

// sigstore is a certificate authority, a time stamp authority and a transparency log, with sigstore-go's own test kit
// behind them, on one server.
type sigstore struct {
	url   string
	token string
	// answers replace those of the service at a path.
	answers map[string]http.HandlerFunc

	fulcio    *root.FulcioCertificateAuthority
	fulcioKey *ecdsa.PrivateKey
	tsa       *root.SigstoreTimestampingAuthority
	tsaKey    *ecdsa.PrivateKey
	log       *ca.VirtualSigstore
}

// Paths of the services.
const (
	fulcioPath = "/api/v2/signingCert"
	tsaPath    = "/api/v1/timestamp"
	rekorPath  = "/api/v1/log/entries"
	oidcPath   = "/oidc"
)

func newSigstore(t *testing.T) *sigstore {
	t.Helper()
	claims, err := json.Marshal(map[string]any{"iss": issuer, "aud": audience, "sub": "1", "email": identity, "email_verified": true})
	must(t, err)
	encode := base64.RawURLEncoding.EncodeToString
	s := &sigstore{token: strings.Join([]string{encode([]byte(`{"alg":"none"}`)), encode(claims), encode([]byte("signature"))}, "."),
		answers: map[string]http.HandlerFunc{}}

	rootCert, rootKey, err := ca.GenerateRootCa()
	must(t, err)
	from, to := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	middle, key, err := ca.GenerateFulcioIntermediate(rootCert, rootKey)
	must(t, err)
	s.fulcio, s.fulcioKey = &root.FulcioCertificateAuthority{Root: rootCert, Intermediates: []*x509.Certificate{middle},
		ValidityPeriodStart: from, ValidityPeriodEnd: to, URI: "https://fulcio.localhost"}, key

	middle, key, err = ca.GenerateTSAIntermediate(rootCert, rootKey)
	must(t, err)
	s.tsaKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	leaf, err := ca.GenerateTSALeafCert(time.Now().Add(-time.Minute), s.tsaKey, middle, key)
	must(t, err)
	s.tsa = &root.SigstoreTimestampingAuthority{Root: rootCert, Intermediates: []*x509.Certificate{middle}, Leaf: leaf,
		ValidityPeriodStart: from, ValidityPeriodEnd: to, URI: "https://tsa.localhost"}

	s.log, err = ca.NewVirtualSigstore()
	must(t, err)

	services := map[string]http.HandlerFunc{fulcioPath: s.certify, tsaPath: s.stamp, rekorPath: s.enter, oidcPath: s.identify}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := s.answers[r.URL.Path]
		if h == nil {
			h = services[r.URL.Path]
		}
		if h == nil {
			http.NotFound(w, r)
			return
		}
		h(w, r)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// command is a keyless signature by these services.
func (s *sigstore) command(dir string, more ...string) []string {
	return append(s.keyless("sign", dir), more...)
}

// keyless is a command that signs by these services.
func (s *sigstore) keyless(args ...string) []string {
	return append(args, "--keyless", "--fulcio", s.url, "--rekor", s.url, "--tsa", s.url+tsaPath)
}

// trustedRoot writes what change leaves of the services into a file.
func (s *sigstore) trustedRoot(t *testing.T, change func(logs, ct map[string]*root.TransparencyLog) (rekor,
	certificates map[string]*root.TransparencyLog)) string {
	t.Helper()
	logs, ct := s.log.RekorLogs(), s.log.CTLogs()
	for _, list := range []map[string]*root.TransparencyLog{logs, ct} {
		for id, l := range list { // the kit writes hexadecimal digits where bytes belong
			raw, err := hex.DecodeString(id)
			must(t, err)
			l.ID, l.SignatureHashFunc = raw, crypto.SHA256
		}
	}
	if change == nil { // leaf certificates of the kit are in no log of certificates
		ct = nil
	} else {
		logs, ct = change(logs, ct)
	}
	tr, err := root.NewTrustedRoot(root.TrustedRootMediaType01, []root.CertificateAuthority{s.fulcio}, ct, []root.TimestampingAuthority{s.tsa}, logs)
	must(t, err)
	data, err := tr.MarshalJSON()
	must(t, err)
	path := filepath.Join(t.TempDir(), "trusted_root.json")
	write(t, path, string(data))
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fail answers with an error that a test shows.
func fail(w http.ResponseWriter, err error) { http.Error(w, err.Error(), http.StatusBadRequest) }

// publicOnly is a key of which the authority knows no more.
type publicOnly struct{ key crypto.PublicKey }

func (p publicOnly) Public() crypto.PublicKey { return p.key }
func (p publicOnly) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return nil, fmt.Errorf("the authority has no private key")
}

// certify is Fulcio: it demands the token and the proof that the requester has the key.
func (s *sigstore) certify(w http.ResponseWriter, r *http.Request) {
	var request struct {
		PublicKeyRequest struct {
			PublicKey         struct{ Algorithm, Content string }
			ProofOfPossession []byte
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		fail(w, err)
		return
	}
	block, _ := pem.Decode([]byte(request.PublicKeyRequest.PublicKey.Content))
	if block == nil {
		fail(w, fmt.Errorf("no PEM"))
		return
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		fail(w, err)
		return
	}
	sum := sha256.Sum256([]byte(identity))
	if r.Header.Get("Authorization") != "Bearer "+s.token || !ecdsa.VerifyASN1(public.(*ecdsa.PublicKey), sum[:], request.PublicKeyRequest.ProofOfPossession) {
		http.Error(w, "not you", http.StatusForbidden)
		return
	}
	leaf, err := ca.GenerateLeafCert(identity, issuer, time.Now(), publicOnly{public}, s.fulcio.Intermediates[0], s.fulcioKey)
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"signedCertificateEmbeddedSct": map[string]any{"chain": map[string]any{
		"certificates": []string{string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}))},
	}}})
}

// stamp is the time stamp authority.
func (s *sigstore) stamp(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		fail(w, err)
		return
	}
	request, err := timestamp.ParseRequest(body)
	if err != nil {
		fail(w, err)
		return
	}
	t := timestamp.Timestamp{
		HashAlgorithm: request.HashAlgorithm, HashedMessage: request.HashedMessage, Time: time.Now(),
		Policy: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 2}, ExtraExtensions: request.Extensions,
	}
	answer, err := t.CreateResponseWithOpts(s.tsa.Leaf, s.tsaKey, crypto.SHA256)
	if err != nil {
		fail(w, err)
		return
	}
	w.WriteHeader(http.StatusCreated)
	w.Write(answer)
}

// enter is the transparency log: it checks the entry as Rekor does, signs it and proves that it is in the log.
func (s *sigstore) enter(w http.ResponseWriter, r *http.Request) {
	proposed, err := models.UnmarshalProposedEntry(r.Body, runtime.JSONConsumer())
	if err != nil {
		fail(w, err)
		return
	}
	entry, err := types.CreateVersionedEntry(proposed)
	if err != nil {
		fail(w, err)
		return
	}
	body, err := types.CanonicalizeEntry(r.Context(), entry)
	if err != nil {
		fail(w, err)
		return
	}
	logID, at, index := slices.Collect(maps.Keys(s.log.RekorLogs()))[0], time.Now().Unix(), int64(0)
	signed, err := s.log.RekorSignPayload(tlog.RekorPayload{Body: base64.StdEncoding.EncodeToString(body), IntegratedTime: at, LogIndex: index, LogID: logID})
	if err != nil {
		fail(w, err)
		return
	}
	proof, err := s.log.GetInclusionProof(body)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("ETag", "1")
	writeJSON(w, http.StatusCreated, models.LogEntry{"1": models.LogEntryAnon{
		Body: base64.StdEncoding.EncodeToString(body), IntegratedTime: &at, LogIndex: &index, LogID: &logID,
		Verification: &models.LogEntryAnonVerification{InclusionProof: proof, SignedEntryTimestamp: signed},
	}})
}

// identify is the token service of GitHub Actions.
func (s *sigstore) identify(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer runner-secret" || r.URL.Query().Get("audience") != audience || r.URL.Query().Get("job") != "7" {
		http.Error(w, "no", http.StatusUnauthorized)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"value": s.token})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(b.Bytes())
}
