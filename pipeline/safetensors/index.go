package safetensors

import (
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// index is model.safetensors.index.json: which shard holds which tensor.
type index struct {
	shards map[string]string // by tensor name
	total  *int64            // sum of the tensors' bytes; nil when the file does not say
}

// readIndex reads an index of at most MaxHeader bytes.
func readIndex(path string) (*index, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxHeader+1))
	if err != nil {
		return nil, err
	}
	if len(b) > MaxHeader {
		return nil, corrupt("%s: longer than %d bytes", indexFile, MaxHeader)
	}
	x, err := parseIndex(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", indexFile, err)
	}
	return x, nil
}

func parseIndex(b []byte) (*index, error) {
	if !utf8.Valid(b) {
		return nil, corrupt("not valid UTF-8")
	}
	x := &index{}
	d := newDecoder(b)
	err := d.object("index", func(key string) error {
		switch key {
		case "weight_map":
			x.shards = map[string]string{}
			return d.object(key, func(name string) error {
				shard, err := d.string(key)
				if err == nil {
					err = checkShardName(shard)
				}
				if err != nil {
					return fmt.Errorf("tensor %s: %w", quote(name), err)
				}
				x.shards[name] = shard
				return nil
			})
		case "metadata":
			return d.object(key, func(key string) error {
				if key != "total_size" {
					return d.skip(key)
				}
				var err error
				x.total, err = d.total()
				return err
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

// total reads total_size, which some writers store as a float such as 1.2e9.
func (d *decoder) total() (*int64, error) {
	n, err := d.number("total_size")
	if err != nil {
		return nil, err
	}
	if len(n) > 40 {
		return nil, corrupt("total_size: no number at byte %d", d.pos)
	}
	// 128 bits hold every int64 exactly; big.Float keeps a huge exponent as a number, not as digits.
	f, _, err := big.ParseFloat(n, 10, 128, big.ToNearestEven)
	if err != nil || !f.IsInt() {
		return nil, corrupt("total_size: %s is not a whole number", n)
	}
	v, acc := f.Int64()
	if acc != big.Exact || v < 0 {
		return nil, corrupt("total_size: %s is not a size", n)
	}
	return &v, nil
}

// checkShardName keeps an index from naming a file outside its directory.
func checkShardName(s string) error {
	if !filepath.IsLocal(s) || s == "." || strings.ContainsAny(s, "/\\:\x00") {
		return corrupt("shard %s is not a plain file name", quote(s))
	}
	return nil
}

// check demands that index and shard headers name the same tensors in the same places.
func (x *index) check(at map[string]place, sum int64) error {
	var wrong, unnamed []string // of which the first is told
	for name, shard := range x.shards {
		if p, ok := at[name]; !ok || p.shard.name != shard {
			wrong = append(wrong, name)
		}
	}
	for name := range at {
		if _, ok := x.shards[name]; !ok {
			unnamed = append(unnamed, name)
		}
	}
	if len(wrong) > 0 {
		name := slices.Min(wrong)
		p, ok := at[name]
		if !ok {
			return corrupt("tensor %s: %s places it in %s, which does not hold it", quote(name), indexFile, quote(x.shards[name]))
		}
		return corrupt("tensor %s: %s places it in %s, it is in %s", quote(name), indexFile, quote(x.shards[name]), quote(p.shard.name))
	}
	if len(unnamed) > 0 {
		name := slices.Min(unnamed)
		return corrupt("tensor %s: in %s and not in %s", quote(name), quote(at[name].shard.name), indexFile)
	}
	if x.total != nil && *x.total != sum {
		return corrupt("%s: total_size is %d, the tensors take %d bytes", indexFile, *x.total, sum)
	}
	return nil
}
