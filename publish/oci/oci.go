// Package oci publishes packages to tags of OCI registries, and opens packages there.
package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	orascontent "oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

// atOnce is the number of concurrent uploads.
const atOnce = 4

// Place publishes to a tag of an OCI registry, as an artifact of the ModelPack format
// (https://github.com/modelpack/model-spec): one raw layer for each file, whose digest is the one in manifest.json, and
// nothing that depends on a time or a machine, so that a package is always the same artifact. Blobs are invisible until
// the tag names their manifest. Registries have no compare and swap: a tag that somebody moves between the last check
// and the push is overwritten.
type Place struct {
	// Ref is registry/repository:tag.
	Ref string
	// Replace allows moving the tag from another package, but from nothing else.
	Replace bool
	// Private declares that the repository is not public, which a registry does not report.
	Private bool
	// Transfer sets retries and timeouts of requests.
	Transfer transfer.Options
}

// String names the tag.
func (o Place) String() string { return "oci " + o.Ref }

// Public implements Store.
func (o Place) Public() bool { return !o.Private }

// repository is a repository of a registry.
type repository struct {
	*remote.Repository
	patience transfer.Options
	secrets  *transfer.Secrets
	base     http.RoundTripper // redacts them
}

// parse parses a reference. An error is a RefError.
func parse(ref string) (registry.Reference, error) {
	r, err := registry.ParseReference(ref)
	if err == nil {
		return r, nil
	}
	why := ""
	if host, name, _ := strings.Cut(ref, "/"); strings.ToLower(name) != name {
		if _, err := registry.ParseReference(host + "/" + strings.ToLower(name)); err == nil {
			why = ": names of repositories are in lower case"
		}
	}
	return r, &place.RefError{Err: fmt.Errorf("%.300q does not have the form registry/repository:tag%s", ref, why)}
}

// Check checks the syntax of the reference.
func (o Place) Check() error {
	r, err := parse(o.Ref)
	if err == nil && (r.Reference == "" || r.ValidateReferenceAsTag() != nil) {
		err = &place.RefError{Err: fmt.Errorf("%.300q has no tag: write registry/repository:tag", o.Ref)}
	}
	return err
}

// openRepo parses the reference and reads the credentials; it sends nothing.
func openRepo(ref string, patience transfer.Options) (*repository, error) {
	r, err := parse(ref)
	if err != nil {
		return nil, err
	}
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("credentials of registries: %w", err)
	}
	repo := &repository{patience: patience, secrets: &transfer.Secrets{}}
	repo.Repository = &remote.Repository{Reference: r, PlainHTTP: loopback(r.Host())}
	repo.base = repo.secrets.Transport(http.DefaultTransport, func(req *http.Request) bool {
		return !strings.HasPrefix(req.URL.Path, "/v2/"+r.Repository+"/") // a token service
	})
	client := &auth.Client{
		Client: &http.Client{CheckRedirect: repo.checkRedirect, Transport: transfer.Listen(repo.base)},
		Header: http.Header{"User-Agent": {"llmexport"}},
		Cache:  auth.NewCache(), Credential: repo.noting(credentials.Credential(store)),
	}
	repo.Client = client
	return repo, nil
}

// noting wraps a credential function and registers its secrets: some are sent in the body of a request.
func (r *repository) noting(credential auth.CredentialFunc) auth.CredentialFunc {
	return func(ctx context.Context, host string) (auth.Credential, error) {
		c, err := credential(ctx, host)
		r.secrets.Add(c.Password, c.RefreshToken, c.AccessToken)
		return c, r.secrets.HideError(err)
	}
}

// loopback reports whether a host is this machine, which registries serve without TLS.
func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// checkRedirect follows redirects to storage. Uploads are sent only to the registry.
func (r *repository) checkRedirect(req *http.Request, via []*http.Request) error {
	if err := r.secrets.CheckHost(req.URL); err != nil {
		return fmt.Errorf("the registry redirects to %w", err)
	}
	switch {
	case len(via) >= 8:
		return errors.New("the registry redirects more than 8 times")
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		return fmt.Errorf("the registry redirects an upload to %s", req.URL.Host)
	case via[0].URL.Scheme == "https" && req.URL.Scheme != "https":
		return fmt.Errorf("the registry redirects from https to %s", req.URL.Scheme)
	}
	return nil
}

// try runs f with retries.
func (r *repository) try(ctx context.Context, what string, do func(ctx context.Context, touch func(int)) error) error {
	return transfer.Retry(ctx, what, r.patience, func(ctx context.Context, touch func(int)) (bool, error) {
		return false, r.explain(do(ctx, touch))
	})
}

// explain describes the response of a registry, without secrets.
func (r *repository) explain(err error) error { return r.secrets.HideError(explain(err)) }

// explain describes the response of a registry, without addresses: those of uploads work for anyone.
func explain(err error) error {
	again := (*transfer.Retryable)(nil)
	if err == nil || errors.As(err, &again) {
		return err
	}
	if answer := (*errcode.ErrorResponse)(nil); errors.As(err, &answer) {
		e := &transfer.StatusError{Status: answer.StatusCode, Who: answer.URL.Host}
		var codes []string
		for _, x := range answer.Errors {
			codes = append(codes, transfer.Said(x.Code))
		}
		e.Code = strings.Join(codes, ", ")
		switch e.Status {
		case 401:
			e.Hint = "log in, for example with docker login " + e.Who
		case 403:
			e.Hint = "the account is not allowed to do this"
		}
		if transfer.Transient(e.Status) || unsettled(answer.Errors) {
			return &transfer.Retryable{Err: e}
		}
		return e
	}
	// Errors of the redirect policy and the disk are final; a broken connection is not.
	if transfer.Broken(err) {
		return &transfer.Retryable{Err: transfer.Redact(err)}
	}
	return transfer.Redact(err)
}

// unsettled reports whether a registry does not know a blob of a manifest. Manifests are pushed after their blobs, but a registry may
// need some time until it finds a blob, also while another program uploads the same one: CNCF's does while it writes a blob's link.
func unsettled(list errcode.Errors) bool {
	return slices.ContainsFunc(list, func(e errcode.Error) bool { return e.Code == errcode.ErrorCodeManifestBlobUnknown })
}

// state is the state of a tag and the effect of publishing to it.
type state struct {
	repo     *repository
	freight  *place.Freight
	artifact *artifact
	tag      string
	was      *ocispec.Descriptor // previous artifact of the tag; nil if there was none
	diff     place.Diff
	missing  []layer // layers that the registry lacks
	receipt  place.Receipt
}

// look reads the state of the tag without changing it. The caller closes the freight.
func (o Place) look(ctx context.Context, p place.Package) (_ *state, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	repo, err := openRepo(o.Ref, o.Transfer)
	if err != nil {
		return nil, err
	}
	tag := repo.Reference.Reference
	f, err := place.FreightOf(p)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	s := &state{repo: repo, freight: f, tag: tag}
	if s.was, err = repo.resolve(ctx, tag); err != nil {
		return nil, err
	}
	status, had := place.Published, map[string]string{}
	if s.was != nil {
		status = place.Replaced
		old, err := repo.artifact(ctx, *s.was)
		if err != nil {
			return nil, fmt.Errorf("the tag does not name a package that llmexport can read, so it is not replaced: %w", err)
		}
		for _, l := range old {
			had[l.Name] = l.SHA256
		}
		if s.diff = place.Compare(had, f.Files); f.Signature() == nil && slices.Contains(s.diff.Keep, manifest.SignatureName) {
			i := slices.IndexFunc(old, func(l layer) bool { return l.Name == manifest.SignatureName })
			f.Add(old[i].Cargo) // layers that the registry has
		}
	}
	s.diff = place.Compare(had, f.Files)
	if s.artifact, err = newArtifact(p.Manifest, f.Sum, f.Files); err != nil {
		return nil, err
	}
	switch {
	case s.was == nil:
	case s.was.Digest == s.artifact.desc.Digest:
		status = place.Unchanged
	case o.Replace, s.diff.Signs():
	case s.diff.SignsAnew():
		return nil, place.ErrSignedAlready
	default:
		return nil, fmt.Errorf("contains another package, %s; set replace to move the tag", s.was.Digest)
	}
	s.receipt = f.Receipt("oci", "oci://"+repo.at(s.artifact.desc), status)
	if status == place.Unchanged {
		return s, nil
	}
	return s, s.findMissing(ctx)
}

// findMissing finds the blobs that the registry lacks.
func (s *state) findMissing(ctx context.Context) error {
	blobs := s.artifact.blobs()
	have := make([]bool, len(blobs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, b := range blobs {
		g.Go(func() error {
			return s.repo.try(ctx, "look for "+b.Name, func(ctx context.Context, _ func(int)) error {
				there, err := s.repo.Blobs().Resolve(ctx, string(b.desc.Digest))
				have[i] = err == nil && there.Size == b.desc.Size // another host may have responded
				if errors.Is(err, errdef.ErrNotFound) {
					err = nil
				}
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	seen := map[digest.Digest]bool{}
	for i, b := range blobs {
		if !have[i] && !seen[b.desc.Digest] {
			seen[b.desc.Digest] = true
			s.missing = append(s.missing, b)
		}
	}
	return nil
}

// at returns the reference of an artifact in the repository.
func (r *repository) at(d ocispec.Descriptor) string {
	return r.Reference.Registry + "/" + r.Reference.Repository + "@" + string(d.Digest)
}

// resolve returns the artifact that a tag or digest names, or nil.
func (r *repository) resolve(ctx context.Context, reference string) (*ocispec.Descriptor, error) {
	var d ocispec.Descriptor
	err := r.try(ctx, "resolve "+reference, func(ctx context.Context, _ func(int)) (err error) {
		d, err = r.Resolve(ctx, reference)
		return err
	})
	if errors.Is(err, errdef.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return &d, err
}

// Ready implements place.Store: the registry responds, and the tag names nothing or a package.
func (o Place) Ready(ctx context.Context, could func(*manifest.Manifest) bool) error {
	if err := o.Check(); err != nil {
		return err
	}
	repo, err := openRepo(o.Ref, o.Transfer)
	if err != nil {
		return err
	}
	was, err := repo.resolve(ctx, repo.Reference.Reference)
	if err != nil || was == nil {
		return err
	}
	layers, err := repo.artifact(ctx, *was)
	if err != nil {
		return fmt.Errorf("the tag does not name a package that llmexport can read, so it is not replaced: %w", err)
	}
	i := slices.IndexFunc(layers, func(l layer) bool { return l.Name == manifest.FileName })
	if o.Replace || i < 0 {
		return nil
	}
	text, err := repo.small(ctx, layers[i].desc)
	if err != nil {
		return err
	}
	if m, err := manifest.Parse(text); err == nil && !could(m) {
		return fmt.Errorf("contains another package, %s; set replace to move the tag", was.Digest)
	}
	return nil
}

// small reads a blob that is at most as long as a manifest.
func (r *repository) small(ctx context.Context, d ocispec.Descriptor) (b []byte, err error) {
	if err := place.CheckSize(manifest.FileName, d.Size, manifest.MaxSize); err != nil {
		return nil, err
	}
	err = r.try(ctx, "read "+manifest.FileName, func(ctx context.Context, touch func(int)) error {
		rc, err := r.Blobs().Fetch(ctx, d)
		if err != nil {
			return err
		}
		defer rc.Close()
		b, err = orascontent.ReadAll(transfer.Watch(rc, touch), d)
		return err
	})
	return b, err
}

// Diff implements Store.
func (o Place) Diff(ctx context.Context, p place.Package) (place.Diff, error) {
	s, err := o.look(ctx, p)
	if err != nil {
		return place.Diff{}, err
	}
	defer s.freight.Close()
	d := s.diff
	d.Status, d.Upload = s.receipt.Status, 0
	if s.was == nil {
		d.Creates = "tag " + s.tag
	}
	for _, l := range s.missing {
		d.Upload += l.desc.Size
	}
	return d, nil
}

// Stage implements Store: it uploads the blobs that the registry does not have.
func (o Place) Stage(ctx context.Context, p place.Package) (place.Staged, error) {
	s, err := o.look(ctx, p)
	if err != nil {
		return nil, err
	}
	defer s.freight.Close()
	var sent atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, l := range s.missing {
		g.Go(func() error {
			if err := s.repo.upload(ctx, l); err != nil {
				return fmt.Errorf("%s: %w", l.Name, err)
			}
			sent.Add(l.desc.Size)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	s.receipt.Uploaded = sent.Load()
	return &staged{state: s, o: o}, nil
}

// staged is a package whose blobs are in the registry.
type staged struct {
	*state
	o         Place
	committed bool
	known     bool // the artifact existed before, without the tag
}

// Commit implements Staged: the push of the manifest under the tag is one step.
func (s *staged) Commit(ctx context.Context) (place.Receipt, error) {
	if s.committed || s.receipt.Status == place.Unchanged {
		return s.receipt, nil
	}
	if err := s.commit(ctx); err != nil {
		return place.Receipt{}, err
	}
	s.committed = true
	return s.receipt, nil
}

func (s *staged) commit(ctx context.Context) error {
	now, err := s.repo.resolve(ctx, s.tag)
	if err != nil {
		return err
	}
	if digestOf(now) != digestOf(s.was) {
		return fmt.Errorf("the tag was %s and is now %s: somebody else has moved it", cmp.Or(digestOf(s.was), "absent"), cmp.Or(digestOf(now), "absent"))
	}
	before, err := s.repo.resolve(ctx, string(s.artifact.desc.Digest))
	if err != nil {
		return err
	}
	s.known = before != nil
	return s.repo.pushManifest(ctx, s.artifact.desc, s.artifact.json, s.tag)
}

func (s *staged) Revert(ctx context.Context) error {
	if !s.committed {
		return nil
	}
	err := s.revert(ctx)
	if err != nil {
		return fmt.Errorf("%s: the tag still names the package, %s: %w", s.o.Ref, s.artifact.desc.Digest, err)
	}
	s.committed = false
	return nil
}

func (s *staged) revert(ctx context.Context) error {
	switch {
	case s.was != nil:
		b, err := s.repo.manifestBytes(ctx, *s.was)
		if err != nil {
			return err
		}
		return s.repo.pushManifest(ctx, *s.was, b, s.tag)
	case s.known:
		return errors.New("registries cannot delete just the tag, and the artifact existed before")
	}
	err := s.repo.try(ctx, "delete", func(ctx context.Context, _ func(int)) error {
		return s.repo.Manifests().Delete(ctx, s.artifact.desc)
	})
	if err != nil {
		return err
	}
	// Most registries remove the tags of deleted artifacts; others need a request, to an address that the library does
	// not use.
	now, err := s.repo.resolve(ctx, s.tag)
	if err != nil || now == nil {
		return err
	}
	return s.repo.deleteTag(ctx, s.tag)
}

// Close implements Staged. Blobs without a manifest are left to the garbage collection of the registry; the next Stage
// reuses those that still exist.
func (s *staged) Close() error { return nil }

func digestOf(d *ocispec.Descriptor) string {
	if d == nil {
		return ""
	}
	return string(d.Digest)
}
