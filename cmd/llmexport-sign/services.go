package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/sigstore/sigstore-go/pkg/sign"

	"github.com/llmexport/llmexport/internal/exit"
)

const (
	// audience is the audience of tokens for Fulcio.
	audience = "sigstore"
	// patience is the timeout of a request to a service, retries the number of retries if it is busy.
	patience = 30 * time.Second
	retries  = 2
	// maxAnswer bounds a response in bytes.
	maxAnswer = 4 << 20
	// none disables a service.
	none = "none"
)

// services are the addresses that a keyless signature needs. The defaults are the public instances of sigstore.
type services struct {
	fulcio, rekor, tsa string
	token              string
}

func (s *services) flags(flags *flag.FlagSet) {
	flags.StringVar(&s.fulcio, "fulcio", "https://fulcio.sigstore.dev", "`URL` of the certificate authority, with --keyless")
	flags.StringVar(&s.rekor, "rekor", "https://rekor.sigstore.dev", "`URL` of the transparency log (version 1), or none, with --keyless")
	flags.StringVar(&s.tsa, "tsa", "https://timestamp.sigstore.dev/api/v1/timestamp", "`URL` of the time stamp authority, or none, with --keyless")
}

// keyless creates a key for the signatures of one run, and the services that certify it.
func (s *services) keyless(ctx context.Context) (*key, sign.BundleOptions, error) {
	var options sign.BundleOptions
	if s.rekor == none && s.tsa == none {
		return nil, options, exit.Usagef("--rekor and --tsa cannot both be none: without a log entry or a time stamp, nobody can verify the signature later")
	}
	for _, x := range []*string{&s.fulcio, &s.rekor, &s.tsa} {
		if *x == none && x != &s.fulcio {
			continue
		}
		if err := checkService(*x); err != nil {
			return nil, options, err
		}
		*x = strings.TrimRight(*x, "/")
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, options, err
	}
	keys, err := newKey(signer)
	if err != nil {
		return nil, options, err
	}
	if s.token, err = identityToken(ctx); err != nil {
		return nil, options, err
	}
	fulcio := sign.NewFulcio(&sign.FulcioOptions{BaseURL: s.fulcio, Timeout: patience, Retries: retries, Transport: confined{}})
	options.CertificateProvider = &oneCertificate{fulcio: fulcio}
	options.CertificateProviderOptions = &sign.CertificateProviderOptions{IDToken: s.token}
	if s.tsa != none {
		options.TimestampAuthorities = []*sign.TimestampAuthority{
			sign.NewTimestampAuthority(&sign.TimestampAuthorityOptions{URL: s.tsa, Timeout: patience, Retries: retries, Transport: confined{}}),
		}
	}
	if s.rekor != none {
		log, err := newRekor(s.rekor)
		if err != nil {
			return nil, options, err
		}
		options.TransparencyLogs = []sign.Transparency{sign.NewRekor(&sign.RekorOptions{BaseURL: s.rekor, Timeout: patience, Client: log})}
	}
	return keys, options, nil
}

// oneCertificate requests a certificate for the key once per run, regardless of the number of signatures.
type oneCertificate struct {
	fulcio sign.CertificateProvider
	der    []byte
}

// GetCertificate returns the certificate. It implements sign.CertificateProvider.
func (c *oneCertificate) GetCertificate(ctx context.Context, keys sign.Keypair, options *sign.CertificateProviderOptions) ([]byte, error) {
	if c.der == nil {
		der, err := c.fulcio.GetCertificate(ctx, keys, options)
		if err != nil {
			return nil, err
		}
		c.der = der
	}
	return c.der, nil
}

// checkService requires https, or http on this machine.
func checkService(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" &&
		(u.Scheme != "http" || !loopback(u.Hostname())) {
		return exit.Usagef("%.200q is not the address of a service, which must be https://HOST[/PATH]", address)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// confined carries requests with tokens. It bounds responses and follows no redirects, because a token is for one host.
type confined struct{}

func (confined) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 3 {
		resp.Body.Close()
		return nil, fmt.Errorf("%s redirects the request (%s), which is not followed", r.URL.Host, resp.Status)
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	return resp, nil
}

// Environment variables with tokens.
const (
	envToken         = "SIGSTORE_ID_TOKEN"
	envActionsURL    = "ACTIONS_ID_TOKEN_REQUEST_URL"
	envActionsSecret = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
)

// identityToken returns the OpenID Connect token of the signer.
func identityToken(ctx context.Context) (string, error) {
	if t := strings.TrimSpace(os.Getenv(envToken)); t != "" {
		return t, checkToken(envToken, t)
	}
	address, secret := os.Getenv(envActionsURL), strings.TrimSpace(os.Getenv(envActionsSecret))
	if address == "" || secret == "" {
		return "", fmt.Errorf("no identity: set %s, or give the GitHub workflow the permission id-token: write", envToken)
	}
	if err := checkToken(envActionsSecret, secret); err != nil {
		return "", err
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return "", fmt.Errorf("%s is not an https address", envActionsURL)
	}
	q := u.Query()
	q.Set("audience", audience)
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", fmt.Errorf("%s is not an https address", envActionsURL)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := (&http.Client{Transport: confined{}, Timeout: patience}).Do(req)
	if err != nil {
		var where *url.Error // contains the whole address, which may contain secrets
		if errors.As(err, &where) {
			err = where.Err
		}
		return "", fmt.Errorf("identity token of GitHub Actions: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("identity token of GitHub Actions: %s", resp.Status)
	}
	var answer struct {
		Value string `json:"value"`
	}
	// The error of the decoder could quote the token.
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Value == "" {
		return "", errors.New("identity token of GitHub Actions: the response contains no token")
	}
	return answer.Value, checkToken("the token of GitHub Actions", answer.Value)
}

// checkToken rejects characters that would end a header.
func checkToken(name, token string) error {
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%s contains invalid characters", name)
	}
	return nil
}

// redact removes the token from responses of services.
func (s *services) redact(err error) error {
	if s.token == "" || !strings.Contains(err.Error(), s.token) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), s.token, "[token]"))
}
