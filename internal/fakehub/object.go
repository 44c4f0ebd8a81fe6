package fakehub

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/llmexport/llmexport/internal/digest"
)

// object is the content of a file, in memory or on disk. It is immutable.
type object struct {
	size   int64
	sha256 string // hex
	blob   string // git's hash in hex: of the content, or of the pointer to it if lfs
	lfs    bool
	data   []byte // the content, if path is empty
	path   string
}

// etag returns the hub's ETag of the content.
func (o *object) etag() string {
	if o.lfs {
		return o.sha256
	}
	return o.blob
}

// open opens the content. A file is not wrapped, so that the server can use sendfile.
func (o *object) open() (io.ReadSeekCloser, error) {
	if o.path != "" {
		return os.Open(o.path)
	}
	return struct {
		*bytes.Reader
		io.Closer
	}{bytes.NewReader(o.data), io.NopCloser(nil)}, nil
}

// bytes returns the whole content.
func (o *object) bytes() ([]byte, error) {
	if o.path != "" {
		return os.ReadFile(o.path)
	}
	return o.data, nil
}

// as returns the same content as an LFS file or as a regular one.
func (o *object) as(lfs bool) (*object, error) {
	if o.lfs == lfs && o.blob != "" {
		return o, nil
	}
	c := *o
	c.lfs = lfs
	if lfs {
		c.blob = gitID("blob", c.pointer())
		return &c, nil
	}
	f, err := o.open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := sha1.New()
	fmt.Fprintf(d, "blob %d\x00", o.size)
	if _, err := io.Copy(d, f); err != nil {
		return nil, err
	}
	c.blob = hex.EncodeToString(d.Sum(nil))
	return &c, nil
}

// pointer returns the file that git stores in place of an LFS file. Format:
// https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md.
func (o *object) pointer() []byte {
	return fmt.Appendf(nil, "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", o.sha256, o.size)
}

// memory returns an object for b, which must not change afterwards.
func memory(b []byte) *object {
	return &object{size: int64(len(b)), sha256: digest.Of(b).Hex(), data: b}
}

// Disk is a file on disk, which is read when it is served.
type Disk struct {
	// Path is the path of the file.
	Path string
	// SHA256 is its digest in hex. If empty, it is computed.
	SHA256 string
}

// object returns the object for a file.
func (d Disk) object() (*object, error) {
	st, err := os.Stat(d.Path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", d.Path)
	}
	o := &object{size: st.Size(), sha256: d.SHA256, path: d.Path}
	if o.sha256 != "" {
		return o, nil
	}
	_, sum, err := digest.File(context.Background(), d.Path)
	o.sha256 = sum.Hex()
	return o, err
}

// gitID returns git's hash of an object, in hex.
func gitID(kind string, b []byte) string {
	s := sha1.Sum(append(fmt.Appendf(nil, "%s %d\x00", kind, len(b)), b...))
	return hex.EncodeToString(s[:])
}

// ReadSums parses the output of sha256sum into digests by name.
func ReadSums(r io.Reader) (map[string]string, error) {
	sums := map[string]string{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		sum, name, ok := strings.Cut(lines.Text(), " ")
		if len(name) < 2 || !ok || !digestPattern.MatchString(sum) {
			return nil, fmt.Errorf("line %.100q is not a digest and a name", lines.Text())
		}
		sums[strings.TrimPrefix(name[1:], "./")] = sum // the name follows a space or a star
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return sums, nil
}
