package safetensors

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/internal/disk"
)

// index is model.safetensors.index.json: which shard holds which tensor. Its total_size is not read: other programs leave it
// as it was when they change the tensors, and the shards' own headers say more.
type index struct {
	shards map[string]string // by tensor name
}

// readIndex reads an index of at most MaxHeader bytes.
func readIndex(path string) (*index, error) {
	f, err := disk.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	text.Grow(int(min(st.Size(), MaxHeader+1)))
	if _, err := io.Copy(&text, io.LimitReader(f, MaxHeader+1)); err != nil {
		return nil, err
	}
	if text.Len() > MaxHeader {
		return nil, corrupt("%s: longer than %d bytes", indexFile, MaxHeader)
	}
	x, err := parseIndex(text.String())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", indexFile, err)
	}
	return x, nil
}

// parseIndex reads an index. Names of tensors are parts of the text.
func parseIndex(text string) (*index, error) {
	if !utf8.ValidString(text) {
		return nil, corrupt("not valid UTF-8")
	}
	x := &index{}
	d := &decoder{text: text}
	err := d.object("index", func(key string) error {
		if key == "weight_map" {
			const nameText = 96 // somewhat less than what a tensor takes
			x.shards = make(map[string]string, len(text)/nameText)
			last := "" // tensors of a shard mostly stand together
			return d.members(key, func(name string) error {
				if _, ok := x.shards[name]; ok {
					return twice(key, name)
				}
				shard, err := d.string(key)
				if err == nil && (shard != last || shard == "") {
					err = checkShardName(shard)
					last = strings.Clone(shard) // which lives longer than the text
				}
				if err != nil {
					return fmt.Errorf("tensor %s: %w", quote(name), err)
				}
				x.shards[name] = last
				return nil
			})
		}
		return d.skip(key)
	})
	if err == nil {
		err = d.end("index")
	}
	if err == nil && len(x.shards) == 0 {
		err = corrupt("weight_map names no tensor")
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

// checkShardName keeps an index from naming a file outside its directory.
func checkShardName(s string) error {
	if !filepath.IsLocal(s) || s == "." || strings.ContainsAny(s, "/\\:\x00") {
		return corrupt("shard %s is not a plain file name", quote(s))
	}
	return nil
}

// check demands that index and shard headers name the same tensors in the same places. Of several that they do not, the
// error names the first.
func (x *index) check(c *Checkpoint) error {
	same, absent := 0, ""
	for i := range c.infos {
		t := &c.infos[i]
		switch shard, ok := x.shards[t.Name]; {
		case ok && shard == t.File:
			same++
		case !ok && absent == "" && !strings.Contains(t.File, "/"): // the index does not list those of modules
			absent = t.Name
		}
	}
	if same < len(x.shards) {
		for _, name := range slices.Sorted(maps.Keys(x.shards)) {
			i, ok := c.find(name)
			if !ok {
				return corrupt("tensor %s: %s places it in %s, which does not hold it", quote(name), indexFile, quote(x.shards[name]))
			}
			if in := c.infos[i].File; in != x.shards[name] {
				return corrupt("tensor %s: %s places it in %s, it is in %s", quote(name), indexFile, quote(x.shards[name]), quote(in))
			}
		}
	}
	if absent != "" {
		i, _ := c.find(absent)
		return corrupt("tensor %s: in %s and not in %s", quote(absent), quote(c.infos[i].File), indexFile)
	}
	return nil
}
