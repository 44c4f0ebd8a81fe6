package fakehub

import (
	"encoding/hex"
	"path"
	"slices"
	"strings"
)

// lfsExtensions are the file extensions in the .gitattributes of a new repository on the hub.
var lfsExtensions = []string{"7z", "arrow", "bin", "bz2", "ckpt", "ftz", "gz", "h5", "joblib", "mlmodel", "model",
	"msgpack", "npy", "npz", "onnx", "ot", "parquet", "pb", "pickle", "pkl", "pt", "pth", "rar", "safetensors", "tar",
	"tflite", "tgz", "wasm", "xz", "zip", "zst"}

// defaultAttributes is the .gitattributes of a new repository.
var defaultAttributes = func() []byte {
	var b strings.Builder
	for _, e := range lfsExtensions {
		b.WriteString("*." + e + " filter=lfs diff=lfs merge=lfs -text\n")
	}
	return []byte(b.String())
}()

// attributes returns the .gitattributes of a commit, or those of a new repository. The commit may be nil.
func (r *Repo) attributes(c *commit) []byte {
	if c == nil || c.files[".gitattributes"] == nil {
		return defaultAttributes
	}
	b, err := c.files[".gitattributes"].bytes()
	if err != nil {
		return defaultAttributes
	}
	return b
}

// lfs reports whether a file of that name and size is an LFS file. It supports the patterns of gitattributes(5) for one
// level: without a slash they match the last element of the name, with one the whole name. The last match wins.
func (h *Hub) lfs(attributes []byte, name string, size int64) bool {
	if size >= h.o.LFSFrom {
		return true
	}
	is := false
	for line := range strings.Lines(string(attributes)) {
		words := strings.Fields(line)
		if len(words) < 2 || strings.HasPrefix(words[0], "#") {
			continue
		}
		pattern, target := strings.TrimPrefix(words[0], "/"), name
		if !strings.Contains(words[0], "/") {
			target = path.Base(name)
		}
		if ok, _ := path.Match(pattern, target); !ok {
			continue
		}
		switch {
		case slices.Contains(words[1:], "filter=lfs"):
			is = true
		case slices.Contains(words[1:], "-filter"), slices.Contains(words[1:], "!filter"):
			is = false
		}
	}
	return is && size > 0
}

// unhex decodes a digest of our own.
func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic("internal error: fakehub: digest " + s)
	}
	return b
}
