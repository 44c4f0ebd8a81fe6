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
)

const (
	// audience is whom tokens for Fulcio are made out to.
	audience = "sigstore"
	// patience is the time that one request to a service may take, retries how often a busy one is asked again.
	patience = 30 * time.Second
	retries  = 2
	// maxAnswer bounds an answer of a service in bytes.
	maxAnswer = 4 << 20
	// none switches a service off.
	none = "none"
)

// services are those that a signature without a key of one's own needs. The defaults are the public ones of sigstore.
type services struct {
	fulcio, rekor, tsa string
	token              string
}

func (s *services) flags(flags *flag.FlagSet) {
	flags.StringVar(&s.fulcio, "fulcio", "https://fulcio.sigstore.dev", "`URL` of the certificate authority, with --keyless")
	flags.StringVar(&s.rekor, "rekor", "https://rekor.sigstore.dev", "`URL` of the transparency log (version 1), or none, with --keyless")
	flags.StringVar(&s.tsa, "tsa", "https://timestamp.sigstore.dev/api/v1/timestamp", "`URL` of the time stamp authority, or none, with --keyless")
}

// keyless prepares a key for the signatures of one run and the services that vouch for it.
func (s *services) keyless(ctx context.Context) (*key, sign.BundleOptions, error) {
	var options sign.BundleOptions
	if s.rekor == none && s.tsa == none {
		return nil, options, usagef("without --rekor and --tsa nobody could tell later that the certificate was valid")
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

// oneCertificate requests a certificate for the key of the run once, however many signatures the key makes.
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

// checkService demands https, or http on this machine.
func checkService(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return usagef("%.200q is no address of a service: it must be https://HOST[/PATH]", address)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// confined carries requests with tokens. It follows no redirect, because a token is for the host it is sent to, and
// bounds answers.
type confined struct{}

func (confined) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 3 {
		resp.Body.Close()
		return nil, fmt.Errorf("%s wants the request elsewhere (%s), which is refused", r.URL.Host, resp.Status)
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	return resp, nil
}

// Variables of the environment that tokens come from.
const (
	envToken         = "SIGSTORE_ID_TOKEN"
	envActionsURL    = "ACTIONS_ID_TOKEN_REQUEST_URL"
	envActionsSecret = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
)

// identityToken gets the OpenID Connect token that says who signs.
func identityToken(ctx context.Context) (string, error) {
	if t := strings.TrimSpace(os.Getenv(envToken)); t != "" {
		return t, checkToken(envToken, t)
	}
	address, secret := os.Getenv(envActionsURL), strings.TrimSpace(os.Getenv(envActionsSecret))
	if address == "" || secret == "" {
		return "", fmt.Errorf("there is no identity: set %s, or give the GitHub workflow the permission id-token: write", envToken)
	}
	if err := checkToken(envActionsSecret, secret); err != nil {
		return "", err
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return "", fmt.Errorf("%s is no https address", envActionsURL)
	}
	q := u.Query()
	q.Set("audience", audience)
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", fmt.Errorf("%s is no https address", envActionsURL)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := (&http.Client{Transport: confined{}, Timeout: patience}).Do(req)
	if err != nil {
		var where *url.Error // has the whole address, which may hold secrets
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
	// An error of the decoder could quote the token.
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Value == "" {
		return "", errors.New("identity token of GitHub Actions: the answer holds none")
	}
	return answer.Value, checkToken("the token of GitHub Actions", answer.Value)
}

// checkToken refuses what would end a header.
func checkToken(name, token string) error {
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%s holds characters that no token has", name)
	}
	return nil
}

// redact takes the token out of what services answer.
func (s *services) redact(err error) error {
	if s.token == "" || !strings.Contains(err.Error(), s.token) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), s.token, "[token]"))
}
