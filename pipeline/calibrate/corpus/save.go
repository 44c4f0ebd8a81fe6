package corpus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// version of the saved form.
const version = 1

// maxSaved bounds a saved corpus in bytes.
const maxSaved = 256 << 20

// saved is a Corpus in a file: canonical JSON as manifest.Canonical writes it, a window on each line.
type saved struct {
	Version int           `json:"corpus"`
	Digest  digest.Digest `json:"digest"`
	*Corpus
}

// Save writes the corpus; equal ones give equal bytes. A corpus that Load would reject is a tensor.ErrCorrupt.
func (c *Corpus) Save(w io.Writer) error {
	b, err := c.marshal()
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func (c *Corpus) marshal() ([]byte, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return manifest.Canonical(saved{version, c.Digest(), c})
}

// Load reads a corpus that Save wrote. A different version is a tensor.ErrUnsupported; any other error, including JSON that is
// not canonical, is a tensor.ErrCorrupt.
func Load(r io.Reader) (*Corpus, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSaved+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxSaved {
		return nil, corrupt("corpus of more than %d bytes", maxSaved)
	}
	s := saved{Corpus: new(Corpus)}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, corrupt("corpus: %v", err)
	}
	if s.Version != version {
		return nil, fmt.Errorf("corpus version %d, this program reads %d: %w", s.Version, version, tensor.ErrUnsupported)
	}
	if s.Corpus == nil {
		return nil, corrupt("corpus: no windows")
	}
	// The decoder accepts repeated names, names in different case and text after the value; this comparison rejects them, and a
	// wrong digest.
	again, err := s.marshal()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(b, again) {
		return nil, corrupt("the digest of the corpus is wrong, or it is not in its canonical form")
	}
	return s.Corpus, nil
}

func (c *Corpus) validate() error {
	if len(c.Windows) == 0 || len(c.Windows[0]) == 0 {
		return corrupt("corpus: no windows")
	}
	length := len(c.Windows[0])
	for i, w := range c.Windows {
		if len(w) != length {
			return corrupt("corpus: window %d has %d tokens, window 0 has %d", i, len(w), length)
		}
		if k := slices.IndexFunc(w, func(id int32) bool { return id < 0 }); k >= 0 {
			return corrupt("corpus: window %d has token %d", i, w[k])
		}
	}
	left := len(c.Windows)
	for _, d := range c.Domains {
		_, err := digest.Parse("sha256:" + d.SHA256)
		switch {
		case err != nil:
			return fmt.Errorf("corpus: %w", err)
		case d.Name == "" || d.Format != samplesFormat && !slices.ContainsFunc(formats, func(f fileFormat) bool { return f.name == d.Format }):
			return corrupt("corpus: domain %q of format %q", d.Name, d.Format)
		case d.Documents < 1 || d.Bytes < 1 || !(d.Weight > 0) || d.Weight > maxWeight || math.IsNaN(d.Weight):
			return corrupt("corpus: domain %q has %d documents, %d bytes, weight %v", d.Name, d.Documents, d.Bytes, d.Weight)
		case d.Windows < 0 || d.Windows > left || d.Tokens != d.Windows*length:
			return corrupt("corpus: domain %q has %d windows, %d tokens", d.Name, d.Windows, d.Tokens)
		}
		left -= d.Windows
	}
	if left != 0 {
		return corrupt("corpus: %d windows belong to no domain", left)
	}
	return nil
}
