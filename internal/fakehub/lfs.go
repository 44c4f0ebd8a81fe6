package fakehub

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/internal/digest"
)

// object returns an LFS object by its digest, or nil.
func (h *Hub) object(digest string) *object {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.objects[digest]
}

// keep adds an LFS object.
func (h *Hub) keep(o *object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.objects[o.sha256] == nil {
		h.objects[o.sha256] = o
	}
}

// lfs handles requests under /ID.git/info/lfs. Protocol:
// https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md.
func (c *call) lfs(s []string) {
	if c.r.Method != http.MethodPost || len(s) != 3 || s[0] != "lfs" || s[1] != "objects" {
		c.notFound()
		return
	}
	switch s[2] {
	case "batch":
		if c.mayWrite() {
			c.batch()
		}
	case "verify":
		if c.mayWrite() {
			c.verify()
		}
	default:
		c.notFound()
	}
}

// maxParts bounds an upload, as S3 does.
const maxParts = 10_000

// pointer identifies an object as clients do.
type pointer struct {
	OID  string `json:"oid"`
	Size int64  `json:"size"`
}

func (p pointer) valid() bool { return digestPattern.MatchString(p.OID) && p.Size > 0 }

// batch returns upload addresses. Existing objects have no actions. An object larger than a part is sent in parts, if
// the client supports the transfer "multipart" of this hub: the header of the action has chunk_size and an address for
// each part, and the address of the action is that of the completion.
func (c *call) batch() {
	var a struct {
		Operation string    `json:"operation"`
		Transfers []string  `json:"transfers"`
		Objects   []pointer `json:"objects"`
		HashAlgo  string    `json:"hash_algo"`
	}
	if !c.body(&a) {
		return
	}
	if a.Operation != "upload" || a.HashAlgo != "" && a.HashAlgo != "sha256" || len(a.Transfers) > 0 && !slices.Contains(a.Transfers, "basic") {
		fail(c.w, http.StatusUnprocessableEntity, "", "Only uploads by basic or multipart transfer, by SHA-256")
		return
	}
	transfer := "basic"
	objects := []map[string]any{}
	for _, p := range a.Objects {
		e := map[string]any{"oid": p.OID, "size": p.Size, "authenticated": true}
		objects = append(objects, e)
		if !p.valid() || p.Size/maxParts >= c.h.o.PartSize {
			e["error"] = map[string]any{"code": http.StatusUnprocessableEntity, "message": "Invalid object"}
			continue
		}
		if o := c.h.object(p.OID); o != nil {
			if o.size != p.Size {
				e["error"] = map[string]any{"code": http.StatusUnprocessableEntity, "message": "The object has another size"}
			}
			continue
		}
		action := map[string]any{"href": c.h.url(onStorage) + c.h.signed(http.MethodPut, fmt.Sprintf("/uploads/%s/%d", p.OID, p.Size))}
		if p.Size > c.h.o.PartSize && slices.Contains(a.Transfers, "multipart") {
			transfer = "multipart"
			action = c.h.beginParts(p)
		}
		e["actions"] = map[string]any{"upload": action, "verify": map[string]any{"href": c.repo.page() + ".git/info/lfs/objects/verify"}}
	}
	c.w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
	_ = json.NewEncoder(c.w).Encode(map[string]any{"transfer": transfer, "objects": objects})
}

// verify reports whether an object has arrived.
func (c *call) verify() {
	var p pointer
	if !c.body(&p) {
		return
	}
	if o := c.h.object(p.OID); o == nil || o.size != p.Size {
		fail(c.w, http.StatusNotFound, "", "The object was not uploaded")
		return
	}
	c.w.WriteHeader(http.StatusOK)
}

// put handles PUT /uploads/DIGEST/SIZE and, for parts, /uploads/DIGEST/SIZE/UPLOAD/NUMBER. Like S3 it requires a
// Content-Length; unlike S3 it checks the digest of an object.
func (h *Hub) put(w http.ResponseWriter, r *http.Request, digest, rest string) {
	s := strings.Split(rest, "/")
	size, err := strconv.ParseInt(s[0], 10, 64)
	if err != nil || len(s) != 1 && len(s) != 3 {
		storageError(w, http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
		return
	}
	switch {
	case r.ContentLength < 0:
		storageError(w, http.StatusLengthRequired, "MissingContentLength", "You must provide the Content-Length HTTP header.")
		return
	case r.ContentLength != size:
		storageError(w, http.StatusBadRequest, "EntityTooSmall", "The size is not the one that was announced.")
		return
	}
	o, etag, err := h.spool(r.Body, size)
	if err != nil {
		storageError(w, http.StatusBadRequest, "IncompleteBody", "You did not provide the number of bytes specified by the Content-Length HTTP header")
		return
	}
	if len(s) == 1 {
		err = h.finish(digest, size, o)
	} else {
		h.mu.Lock()
		u := h.parts[s[1]]
		n, _ := strconv.Atoi(s[2])
		if u == nil || u.digest != digest || n < 1 || n > u.count {
			err = errors.New("the specified upload does not exist")
		} else {
			if old := u.parts[n]; old != nil {
				old.remove()
			}
			u.parts[n] = &part{etag, o}
		}
		h.mu.Unlock()
	}
	if err != nil {
		o.remove()
		storageError(w, http.StatusBadRequest, "BadDigest", err.Error())
		return
	}
	w.Header().Set("ETag", etag)
	w.WriteHeader(http.StatusOK)
}

// spool stores size bytes. The object's digest is that of the bytes.
func (h *Hub) spool(r io.Reader, size int64) (*object, string, error) {
	sum, tag := digest.New(), md5.New()
	r = io.TeeReader(io.LimitReader(r, size), io.MultiWriter(sum, tag))
	o := &object{}
	var err error
	if h.o.Dir == "" {
		var b bytes.Buffer
		o.size, err = b.ReadFrom(r)
		o.data = b.Bytes()
	} else {
		var f *os.File
		if f, err = os.CreateTemp(h.o.Dir, "object-*"); err != nil {
			return nil, "", err
		}
		o.path = f.Name()
		o.size, err = io.Copy(f, r)
		err = errors.Join(err, f.Close())
	}
	if err == nil && o.size != size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		o.remove()
		return nil, "", err
	}
	o.sha256 = sum.Hex()
	return o, `"` + hex.EncodeToString(tag.Sum(nil)) + `"`, nil
}

// remove deletes an object that is not needed.
func (o *object) remove() {
	if o.path != "" {
		_ = os.Remove(o.path)
	}
}

// finish keeps an uploaded object if it has the announced digest and size.
func (h *Hub) finish(digest string, size int64, o *object) error {
	if o.sha256 != digest || o.size != size {
		return fmt.Errorf("the object has %d bytes of SHA-256 %s", o.size, o.sha256)
	}
	o, err := o.as(true)
	if err != nil {
		return err
	}
	h.keep(o)
	h.stats.mu.Lock()
	h.stats.uploads++
	h.stats.mu.Unlock()
	return nil
}
