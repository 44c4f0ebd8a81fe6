package fakehub

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// resolve serves a file by its name: large ones by a redirect to storage, small ones by a relative redirect to the
// hub's own cache. In a gated repository, only authorized users may read.
func (c *call) resolve(revision, name string, cached bool) {
	at := c.at(revision)
	if at == nil {
		return
	}
	head := c.w.Header()
	head.Set("X-Repo-Commit", at.id)
	if _, gated := c.repo.Settings(); gated != "" && (c.user == nil || c.user.Role == Stranger) {
		status, message := http.StatusForbidden, "Access to model "+c.repo.name+" is restricted and you are not in the authorized list. "+
			"Visit its page to ask for access."
		if c.user == nil {
			status, message = http.StatusUnauthorized, "Access to model "+c.repo.name+" is restricted. You must have access to it and be "+
				"authenticated to access it. Please log in."
		}
		fail(c.w, status, "GatedRepo", message)
		return
	}
	o := at.files[name]
	if o == nil {
		fail(c.w, http.StatusNotFound, "EntryNotFound", "Entry not found")
		return
	}
	head.Set("Accept-Ranges", "bytes")
	head.Set("Access-Control-Expose-Headers", "X-Repo-Commit,X-Error-Code,X-Error-Message,ETag,Link,Accept-Ranges,Content-Range,X-Linked-Size,X-Linked-ETag")
	if o.lfs {
		head.Set("X-Linked-Size", strconv.FormatInt(o.size, 10))
		head.Set("X-Linked-ETag", `"`+o.etag()+`"`)
		redirect(c.w, http.StatusFound, c.h.sign(c.repo, name, o))
		return
	}
	if !cached && !c.h.o.Direct {
		head.Set("X-Linked-Size", strconv.FormatInt(o.size, 10))
		head.Set("X-Linked-ETag", `"`+o.etag()+`"`)
		redirect(c.w, http.StatusTemporaryRedirect, fmt.Sprintf("/api/resolve-cache/%s/%s/%s?etag=%s", c.repo.key, at.id, escape(name),
			url.QueryEscape(`"`+o.etag()+`"`)))
		return
	}
	serveObject(c.w, c.r, o, name)
}

// redirect sends a redirect. http.Redirect would make a relative address absolute.
func redirect(w http.ResponseWriter, status int, location string) {
	w.Header().Set("Location", location)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	body := http.StatusText(status) + ". Redirecting to " + location
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// escape escapes a file name for an address.
func escape(name string) string {
	s := strings.Split(name, "/")
	for i := range s {
		s[i] = url.PathEscape(s[i])
	}
	return strings.Join(s, "/")
}

// serveObject sends content, or the requested range of it.
func serveObject(w http.ResponseWriter, r *http.Request, o *object, name string) {
	f, err := o.open()
	if err != nil {
		fail(w, http.StatusInternalServerError, "", "Internal Server Error")
		return
	}
	defer f.Close()
	w.Header().Set("ETag", `"`+o.etag()+`"`)
	w.Header().Set("Content-Type", "application/octet-stream")
	if _, base := split(name); !o.lfs {
		w.Header().Set("Content-Disposition", fmt.Sprintf("inline; filename*=UTF-8''%s; filename=%q;", url.PathEscape(base), base))
	}
	http.ServeContent(w, r, "", time.Time{}, f)
}

// sign returns the address of an LFS object in storage. It ends with the name of the file, for faults and counters.
func (h *Hub) sign(repo *Repo, name string, o *object) string {
	p := "/objects/" + o.sha256 + "/" + repo.key + "/" + name
	return h.url(onStorage) + h.signed(http.MethodGet, p)
}

// signed returns a path of storage with an expiring signature.
func (h *Hub) signed(method, path string) string {
	expires := strconv.FormatInt(time.Now().Add(h.o.SignedFor).Unix(), 10)
	return escape(path) + "?" + url.Values{"X-Amz-Expires": {expires}, "X-Amz-Signature": {h.signature(method, path, expires)}}.Encode()
}

func (h *Hub) signature(method, path, expires string) string {
	m := hmac.New(sha256.New, h.secret)
	fmt.Fprintf(m, "%s\n%s\n%s", method, path, expires)
	return hex.EncodeToString(m.Sum(nil))
}

// serveStorage handles requests to storage.
func (h *Hub) serveStorage(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	expires := query.Get("X-Amz-Expires")
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	until, err := strconv.ParseInt(expires, 10, 64)
	switch {
	case r.Header.Get("Authorization") != "" && !strings.HasPrefix(r.URL.Path, "/open/"):
		storageError(w, http.StatusBadRequest, "InvalidArgument", "Only one auth mechanism allowed")
		return
	case err != nil || !hmac.Equal([]byte(query.Get("X-Amz-Signature")), []byte(h.signature(method, r.URL.Path, expires))):
		storageError(w, http.StatusForbidden, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
		return
	case time.Now().Unix() >= until:
		expired(w)
		return
	}
	kind, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	id, rest, _ := strings.Cut(rest, "/")
	switch {
	case kind == "objects" && method == http.MethodGet:
		o := h.object(id)
		if o == nil {
			storageError(w, http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
			return
		}
		serveObject(w, r, o, rest)
	case (kind == "uploads" || kind == "open") && method == http.MethodPut:
		h.put(w, r, id, rest)
	default:
		storageError(w, http.StatusMethodNotAllowed, "MethodNotAllowed", "The specified method is not allowed against this resource.")
	}
}

// storageError responds as S3 does.
func storageError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>%s</Message></Error>", code, message)
}

func expired(w http.ResponseWriter) {
	storageError(w, http.StatusForbidden, "AccessDenied", "Request has expired")
}
