package corpus

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/llmexport/llmexport/publish/manifest"
)

const (
	// sampleBytes is the number of bytes of text that are read for each token of the corpus. A token of prose has 4 or 5, so
	// a sample has about eight times the windows that are needed, enough to choose those that begin well.
	sampleBytes = 32
	// pieceBytes is the length of a passage of a long document for each token of a window if the text is sampled: about four
	// windows.
	pieceBytes = 16
)

// domain is a file while its windows are chosen.
type domain struct {
	file
	closer    io.Closer
	read      reader
	sha256    string
	documents int
	bytes     int64 // of text
	crlf      int   // documents with CRLF line ends
	windows   [][]int32
	tokens    int // in the sampled text
}

// open reads a whole file once, and checks its digest, its documents and its form.
func open(ctx context.Context, data Data, o *Options) (_ *domain, err error) {
	if err := data.Validate(); err != nil {
		return nil, err
	}
	form, err := data.format()
	if err != nil {
		return nil, err
	}
	path := data.Path
	if o.Resolve != nil {
		path = o.Resolve(path)
	}
	// Before opening, because opening a pipe waits for its writer.
	info, err := os.Stat(path)
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("not a regular file")
	}
	if err == nil && info.Size() == 0 {
		err = fmt.Errorf("the file is empty")
	}
	if err == nil && info.Size() > form.max {
		err = fmt.Errorf("the file has %d bytes; the limit of the format %s is %d", info.Size(), form.name, form.max)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", data.Path, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", data.Path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			err = fmt.Errorf("%s: %w", data.Path, err)
		}
	}()
	d := &domain{file: file{f, info.Size(), data}, closer: f, read: form.read}
	d.Format = form.name
	if d.Weight == 0 {
		d.Weight = 1
	}
	sum, err := manifest.Hash(ctx, io.NewSectionReader(f, 0, d.size))
	if err != nil {
		return nil, err
	}
	if d.sha256 = sum.SHA256; data.SHA256 != "" && d.sha256 != data.SHA256 {
		return nil, corrupt("the file has SHA-256 %s, not %s", d.sha256, data.SHA256)
	}
	if d.Chat && o.Render == nil {
		return nil, fmt.Errorf("the file holds conversations, and the model has no chat template")
	}
	return d, d.count(ctx)
}

func (d *domain) count(ctx context.Context) error {
	crlf := false
	err := d.read(ctx, &d.file, func(p passage) error {
		d.bytes += p.size()
		if p.start {
			d.documents++
			crlf = false
		}
		has := strings.Contains(p.text, "\r\n")
		for _, m := range p.messages {
			has = has || strings.Contains(m.Content, "\r\n")
		}
		if has && !crlf {
			d.crlf++
			crlf = true
		}
		return nil
	})
	if err == nil && d.documents == 0 {
		err = fmt.Errorf("the file holds no text")
	}
	return err
}

// random returns a separate source for each use, so that the windows of one domain do not depend on the others.
func (d *domain) random(seed uint64) *rand.PCG {
	sum, err := hex.DecodeString(d.sha256)
	if err != nil {
		panic("internal error: " + err.Error())
	}
	return rand.NewPCG(seed, binary.LittleEndian.Uint64(sum))
}

// fill chooses n windows, or as many as there are.
func (d *domain) fill(ctx context.Context, n int, o *Options) error {
	d.windows = nil
	if n == 0 {
		return nil
	}
	p := packing{window: o.Window, prefix: o.Prefix, whole: d.Chat}
	if !d.Chat {
		p.separator = o.separator
	}
	looked := int64(n) * int64(o.Window) * sampleBytes
	for {
		pieces, err := d.encode(ctx, looked, o)
		if err != nil {
			return fmt.Errorf("%s: %w", d.Path, err)
		}
		windows := p.pack(pieces)
		if len(windows) < n && looked < d.bytes {
			looked *= 4
			continue
		}
		if len(windows) < n {
			p.all = true
			windows = p.pack(pieces)
		}
		d.windows = spread(windows, min(n, len(windows)), d.random(o.Seed))
		return nil
	}
}

// encode returns the tokens of passages with about limit bytes of text in total, taken evenly, or of the whole text if it is
// shorter.
func (d *domain) encode(ctx context.Context, limit int64, o *Options) ([]ids, error) {
	var (
		all       = limit >= d.bytes
		size      = chunk
		pieces    []ids
		taken     = 0.0 // bytes of text, less a random part of a passage
		pos       int64 // bytes of text so far
		documents int
		previous  bool // the piece before was taken
	)
	if !all {
		size = o.Window * pieceBytes
		taken = -float64(below(d.random(o.Seed), size))
	}
	d.tokens = 0
	take := func(p passage) error {
		tokens, err := d.tokenize(p, o)
		if err != nil {
			return err
		}
		d.tokens += len(tokens)
		pieces = append(pieces, ids{p.start || !previous, tokens})
		return nil
	}
	visit := func(p passage) error {
		if p.start {
			documents++
		}
		texts := []string{p.text}
		if p.messages == nil {
			texts = cut(p.text, size)
		}
		for i, text := range texts {
			piece := passage{p.start && i == 0, text, p.messages}
			// The beginning of a document is taken as soon as it is due, the rest of it only once a whole piece is due, so
			// that the sample has many beginnings rather than a few whole documents.
			due := float64(float64(limit) * (float64(pos) / float64(d.bytes)))
			pos += piece.size()
			if !piece.start {
				due -= float64(piece.size())
			}
			if !all && taken > due {
				previous = false
				continue
			}
			if err := take(piece); err != nil {
				return err
			}
			taken += float64(piece.size())
			previous = true
		}
		return nil
	}
	if err := d.read(ctx, &d.file, visit); err != nil {
		return nil, err
	}
	if pos != d.bytes || documents != d.documents {
		return nil, corrupt("the file changed while it was read")
	}
	return pieces, nil
}

func (d *domain) tokenize(p passage, o *Options) ([]int32, error) {
	if p.messages != nil {
		var err error
		if p.text, err = o.Render(p.messages); err != nil {
			return nil, fmt.Errorf("chat template: %w", err)
		}
	}
	return o.Encode(p.text)
}

func (d *domain) result() Domain {
	return Domain{
		Name: filepath.Base(filepath.FromSlash(d.Path)), SHA256: d.sha256, Format: d.Format, Documents: d.documents, Bytes: d.size,
		Windows: len(d.windows), Weight: d.Weight,
	}
}
