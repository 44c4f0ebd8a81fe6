package hubs

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	maxHubAnswer = 32 << 20 // bytes of a response of a hub
	maxHubFiles  = 100_000  // files of a repository
	maxParts     = 10_000   // parts of an upload, the limit of S3
)

var (
	gitID = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// repoFile is a file of a repository.
type repoFile struct {
	size   int64  // bytes
	git    string // git's name of the content, if the content is in git
	sha256 string // digest of the content, if git has an LFS pointer
}

// repoInfo describes a repository and one of its revisions.
type repoInfo struct {
	commit  string
	private bool
	gated   string // "", "auto" or "manual"
}

func corruptAnswer(what string, err error) error {
	return fmt.Errorf("the hub's response about %s: %w: %w", what, err, tensor.ErrCorrupt)
}

func parseInfo(b []byte) (repoInfo, error) {
	var a struct {
		SHA     string `json:"sha"`
		Private bool   `json:"private"`
		Gated   any    `json:"gated"`
	}
	if err := jsondoc.Decode(b, &a); err != nil {
		return repoInfo{}, corruptAnswer("the repository", err)
	}
	if !gitID.MatchString(a.SHA) {
		return repoInfo{}, fmt.Errorf("the hub returned the commit %.60q: %w", a.SHA, tensor.ErrCorrupt)
	}
	gated, _ := a.Gated.(string) // it is the boolean false if not gated
	return repoInfo{commit: a.SHA, private: a.Private, gated: gated}, nil
}

// parseTree adds one page of a listing to files. The names are only compared, and never used as paths of this machine.
func parseTree(b []byte, files map[string]repoFile) error {
	var page []struct {
		Type string `json:"type"`
		Path string `json:"path"`
		Size int64  `json:"size"`
		OID  string `json:"oid"`
		LFS  *struct {
			OID  string `json:"oid"`
			Size int64  `json:"size"`
		} `json:"lfs"`
	}
	if err := jsondoc.Decode(b, &page); err != nil {
		return corruptAnswer("the files", err)
	}
	for _, e := range page {
		if e.Type != "file" {
			continue
		}
		f := repoFile{size: e.Size, git: e.OID}
		ok := gitID.MatchString(e.OID)
		if e.LFS != nil {
			f = repoFile{size: e.LFS.Size, sha256: e.LFS.OID}
			ok = digest.IsHex(e.LFS.OID)
		}
		if !ok || f.size < 0 || e.Path == "" {
			return fmt.Errorf("the hub lists %.200q with an invalid size or digest: %w", e.Path, tensor.ErrCorrupt)
		}
		if _, twice := files[e.Path]; twice {
			return fmt.Errorf("the hub lists %.200q twice: %w", e.Path, tensor.ErrCorrupt)
		}
		if len(files) == maxHubFiles {
			return fmt.Errorf("the repository has more than %d files: %w", maxHubFiles, tensor.ErrUnsupported)
		}
		files[e.Path] = f
	}
	return nil
}

// parsePreupload returns which of the asked paths must be LFS files.
func parsePreupload(b []byte, asked []string) (map[string]bool, error) {
	var a struct {
		Files []struct {
			Path   string `json:"path"`
			Mode   string `json:"uploadMode"`
			Ignore bool   `json:"shouldIgnore"`
		} `json:"files"`
	}
	if err := jsondoc.Decode(b, &a); err != nil {
		return nil, corruptAnswer("how to upload", err)
	}
	lfs := map[string]bool{}
	for _, f := range a.Files {
		if !slices.Contains(asked, f.Path) || f.Mode != "lfs" && f.Mode != "regular" {
			return nil, fmt.Errorf("the hub requires %.200q to be uploaded as %.40q: %w", f.Path, f.Mode, tensor.ErrCorrupt)
		}
		if f.Ignore {
			return nil, fmt.Errorf("%s: the repository's .gitignore excludes it", f.Path)
		}
		lfs[f.Path] = f.Mode == "lfs"
	}
	if len(lfs) != len(asked) {
		return nil, fmt.Errorf("the hub responded for %d of %d files: %w", len(lfs), len(asked), tensor.ErrCorrupt)
	}
	return lfs, nil
}

// lfsUpload describes how to upload an LFS object. The addresses are signed: they are never shown.
type lfsUpload struct {
	to     *url.URL
	header http.Header // for an upload in one request
	verify *url.URL    // notified afterwards; may be nil

	// With parts, each is sent to its own address, and to is notified at the end.
	parts []*url.URL
	chunk int64 // bytes of a part
}

// parseBatch parses the response to an LFS batch request for objects of these sizes: nil for each object that exists.
// Addresses use https, or the scheme of home.
func parseBatch(b []byte, sizes map[string]int64, home *url.URL) (map[string]*lfsUpload, error) {
	var a struct {
		Objects []struct {
			OID   string `json:"oid"`
			Error *struct {
				Code    int    `json:"code"`
				Message string `json:"message"`
			} `json:"error"`
			Actions struct {
				Upload, Verify *struct {
					Href   string         `json:"href"`
					Header map[string]any `json:"header"`
				}
			} `json:"actions"`
		} `json:"objects"`
	}
	if err := jsondoc.Decode(b, &a); err != nil {
		return nil, corruptAnswer("large files", err)
	}
	uploads := map[string]*lfsUpload{}
	for _, o := range a.Objects {
		size, asked := sizes[o.OID]
		if _, twice := uploads[o.OID]; twice || !asked {
			return nil, fmt.Errorf("the hub responded for the large file %.80q, which was not requested: %w", o.OID, tensor.ErrCorrupt)
		}
		if o.Error != nil {
			return nil, fmt.Errorf("the hub rejects a large file of %d bytes: %d %s", size, o.Error.Code, transfer.Said(o.Error.Message))
		}
		uploads[o.OID] = nil
		if o.Actions.Upload == nil {
			continue
		}
		u := &lfsUpload{header: http.Header{}}
		var err error
		if u.to, err = storageURL(o.Actions.Upload.Href, home); err != nil {
			return nil, err
		}
		if v := o.Actions.Verify; v != nil {
			if u.verify, err = storageURL(v.Href, home); err != nil {
				return nil, err
			}
		}
		if err := u.parseHeader(o.Actions.Upload.Header, size, home); err != nil {
			return nil, err
		}
		uploads[o.OID] = u
	}
	if len(uploads) != len(sizes) {
		return nil, fmt.Errorf("the hub responded for %d of %d large files: %w", len(uploads), len(sizes), tensor.ErrCorrupt)
	}
	return uploads, nil
}

// parseHeader parses the header of an address: the addresses of parts under "1", "2" and so on and their size under
// "chunk_size", an extension of Hugging Face, or HTTP headers to send.
func (u *lfsUpload) parseHeader(header map[string]any, size int64, home *url.URL) error {
	chunk, ok := header["chunk_size"]
	if !ok {
		for k, v := range header {
			if s, ok := v.(string); ok && !strings.EqualFold(k, "Transfer-Encoding") {
				u.header.Set(k, s)
			}
		}
		return nil
	}
	n, err := strconv.ParseInt(fmt.Sprint(chunk), 10, 64)
	if f, ok := chunk.(float64); ok {
		n, err = int64(f), nil
	}
	if err != nil || n <= 0 || n > size+(1<<40) || (size-1)/n+1 > maxParts {
		return fmt.Errorf("the hub requires %d bytes in parts of %.40v: %w", size, chunk, tensor.ErrCorrupt)
	}
	u.chunk = n
	u.parts = make([]*url.URL, (size-1)/n+1)
	for i := range u.parts {
		s, _ := header[strconv.Itoa(i+1)].(string)
		if s == "" { // some responses pad the numbers
			s, _ = header[fmt.Sprintf("%05d", i+1)].(string)
		}
		if u.parts[i], err = storageURL(s, home); err != nil {
			return fmt.Errorf("part %d of %d: %w", i+1, len(u.parts), err)
		}
	}
	for k := range header {
		if i, err := strconv.Atoi(k); err == nil && (i < 1 || i > len(u.parts)) {
			return fmt.Errorf("the hub returned an address for part %d of %d: %w", i, len(u.parts), tensor.ErrCorrupt)
		}
	}
	return nil
}

// storageURL parses an address from a hub. It must be encrypted if the connection to the hub is.
func storageURL(s string, home *url.URL) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || home.Scheme != "http") {
		return nil, fmt.Errorf("the hub returned no usable address of its storage: %w", tensor.ErrCorrupt)
	}
	return u, nil
}

// nextPage parses the Link header of a page: the address of the next page, or nil. It must be on the hub itself.
func nextPage(link string, here *url.URL) (*url.URL, error) {
	for part := range strings.SplitSeq(link, ",") {
		target, params, ok := strings.Cut(part, ";")
		if !ok || !strings.Contains(params, `rel="next"`) {
			continue
		}
		next, err := here.Parse(strings.Trim(target, " <>"))
		if err != nil || next.Scheme != here.Scheme || next.Host != here.Host {
			return nil, fmt.Errorf("the hub's list continues on another server: %w", tensor.ErrCorrupt)
		}
		return next, nil
	}
	return nil, nil
}

// foreign lists the files of a repository that are in none of the sets, sorted.
func foreign(files map[string]repoFile, ours ...func(name string) bool) []string {
	var list []string
	for name := range files {
		if !slices.ContainsFunc(ours, func(is func(string) bool) bool { return is(name) }) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}
