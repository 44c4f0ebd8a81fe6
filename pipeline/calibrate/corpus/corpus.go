package corpus

import (
	"encoding/binary"

	"github.com/llmexport/llmexport/internal/digest"
)

// Corpus is calibration data as tokens of a model.
type Corpus struct {
	// Windows all have the same length; those of a domain follow each other, domains in the order of the recipe.
	Windows [][]int32 `json:"windows"`
	Domains []Domain  `json:"domains"`
	// Warnings are sentences that the user can act on.
	Warnings []string `json:"warnings"`
}

// Domain describes the windows made from one file.
type Domain struct {
	Name      string  `json:"name"`      // last element of its path
	SHA256    string  `json:"sha256"`    // of the file
	Format    string  `json:"format"`    // json, jsonl, parquet, text, or samples of the model
	Documents int     `json:"documents"` // in the file, those without text not counted
	Bytes     int64   `json:"bytes"`     // of the file
	Tokens    int     `json:"tokens"`    // in its windows, prefixes included
	Windows   int     `json:"windows"`
	Weight    float64 `json:"weight"`
}

// samplesFormat is the format of text that the model generated.
const samplesFormat = "samples"

// AddSamples adds text that the model generated, as a domain whose file is the list of its tokens.
func (c *Corpus) AddSamples(windows [][]int32, weight float64) {
	tokens := len(windows) * len(windows[0])
	own := Corpus{Windows: windows}
	c.Windows = append(c.Windows, windows...)
	c.Domains = append(c.Domains, Domain{
		Name: "samples", SHA256: own.Digest().Hex(), Format: samplesFormat,
		Documents: len(windows), Bytes: 4 * int64(tokens), Tokens: tokens, Windows: len(windows), Weight: weight,
	})
}

// Digest is the SHA-256 of the windows, in order: of each the number of its ids and the ids, as little-endian uint32.
func (c *Corpus) Digest() digest.Digest {
	h := digest.New()
	var b []byte
	for _, w := range c.Windows {
		b = binary.LittleEndian.AppendUint32(b[:0], uint32(len(w)))
		for _, id := range w {
			b = binary.LittleEndian.AppendUint32(b, uint32(id))
		}
		h.Write(b)
	}
	return h.Digest()
}
