package fakehub

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// upload is an upload in parts. It may be completed once all parts have arrived, and extended until then.
type upload struct {
	digest string
	size   int64
	count  int
	parts  map[int]*part
}

// part is a received part.
type part struct {
	etag string
	*object
}

// beginParts returns the action for an upload in parts.
func (h *Hub) beginParts(p pointer) map[string]any {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	id := hex.EncodeToString(b)
	u := &upload{digest: p.OID, size: p.Size, count: int((p.Size + h.o.PartSize - 1) / h.o.PartSize), parts: map[int]*part{}}
	h.mu.Lock()
	h.parts[id] = u
	h.mu.Unlock()
	header := map[string]string{"chunk_size": strconv.FormatInt(h.o.PartSize, 10)}
	for n := 1; n <= u.count; n++ {
		size := min(h.o.PartSize, p.Size-int64(n-1)*h.o.PartSize)
		header[fmt.Sprintf("%05d", n)] = h.url(onStorage) + h.signed(http.MethodPut, fmt.Sprintf("/uploads/%s/%d/%s/%d", p.OID, size, id, n))
	}
	href := h.url(onHub) + "/api/complete_multipart?" + url.Values{"uploadId": {id}, "signature": {h.signature(http.MethodPost, id, "")}}.Encode()
	return map[string]any{"href": href, "header": header}
}

// complete handles POST /api/complete_multipart, which needs no token: its address is signed.
func (c *call) complete() {
	query := c.r.URL.Query()
	id := query.Get("uploadId")
	var a struct {
		OID   string `json:"oid"`
		Parts []struct {
			PartNumber int    `json:"partNumber"`
			ETag       string `json:"etag"`
		} `json:"parts"`
	}
	if c.r.Method != http.MethodPost || !hmac.Equal([]byte(query.Get("signature")), []byte(c.h.signature(http.MethodPost, id, ""))) {
		fail(c.w, http.StatusForbidden, "", "Invalid signature")
		return
	}
	if !c.body(&a) {
		return
	}
	c.h.mu.RLock()
	u := c.h.parts[id]
	var have map[int]*part
	if u != nil {
		have = maps.Clone(u.parts)
	}
	c.h.mu.RUnlock()
	if u == nil {
		// A client repeats a completion whose response was lost.
		if c.h.object(a.OID) == nil {
			fail(c.w, http.StatusNotFound, "", "The specified upload does not exist.")
			return
		}
		c.json(map[string]bool{"success": true})
		return
	}
	if a.OID != u.digest || len(a.Parts) != u.count {
		fail(c.w, http.StatusBadRequest, "", fmt.Sprintf("%d of %d parts", len(a.Parts), u.count))
		return
	}
	var readers []io.Reader
	for i, p := range a.Parts {
		got := have[p.PartNumber]
		if p.PartNumber != i+1 || got == nil || strings.Trim(got.etag, `"`) != strings.Trim(p.ETag, `"`) {
			fail(c.w, http.StatusBadRequest, "", fmt.Sprintf("InvalidPart: %d", p.PartNumber))
			return
		}
		f, err := got.open()
		if err != nil {
			fail(c.w, http.StatusInternalServerError, "", "Internal Server Error")
			return
		}
		defer f.Close()
		readers = append(readers, f)
	}
	o, _, err := c.h.spool(io.MultiReader(readers...), u.size)
	if err == nil {
		if err = c.h.finish(u.digest, u.size, o); err != nil {
			o.remove()
		}
	}
	if err != nil {
		fail(c.w, http.StatusBadRequest, "", "The parts are not the object: "+err.Error())
		return
	}
	c.h.mu.Lock()
	delete(c.h.parts, id)
	c.h.mu.Unlock()
	for _, p := range have {
		p.remove()
	}
	c.json(map[string]bool{"success": true})
}
