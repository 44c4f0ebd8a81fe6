package runtime

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/prompt"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Reader reads prompts with pictures and clips, by the parts of a package for them. It is not safe for concurrent use.
type Reader struct {
	Package *Package
	Tower   *Tower // nil without the part
	Ear     *Ear   // nil without the part
}

// NewReader compiles the parts of a package that read pictures and sound, whichever it has. It returns nil for a package that reads text only.
func NewReader(p *Package, b backend.Backend, o Options) (*Reader, error) {
	r := &Reader{Package: p}
	var err error
	if p.Visual() != nil {
		if r.Tower, err = NewTower(p, b, o); err != nil {
			return nil, err
		}
	}
	if p.Audio() != nil {
		if r.Ear, err = NewEar(p, b, o); err != nil {
			return nil, err
		}
	}
	if r.Tower == nil && r.Ear == nil {
		return nil, nil
	}
	return r, nil
}

// Prompt is what a text with pictures and clips becomes, or a part of one.
type Prompt struct {
	Tokens []int32
	// Pictures are those that the tokens Config.ImagePad become, and clips those that the tokens Config.AudioPad become, in order, see
	// [Session.Show].
	Pictures []Picture
}

// Clip reports whether this is what a clip becomes.
func (p *Prompt) Clip() bool { return len(p.Pictures) > 0 && p.Pictures[0].clip }

// Read turns a prompt with pictures and clips into tokens and rows, as the engine does: <img>FILE</img> names a picture, <audio>FILE</audio> a
// clip. Each text between them is encoded on its own.
func (r *Reader) Read(ctx context.Context, text string) (*Prompt, error) {
	pieces, err := prompt.Parse(text)
	if err != nil {
		return nil, err
	}
	p, c := &Prompt{}, r.Package.Config
	size := picture.Size{Height: c.ImageSize, Width: c.ImageSize} // a picture without one has that of the picture before it
	for _, x := range pieces {
		if x.Kind == prompt.Text {
			p.Tokens = append(p.Tokens, r.Package.Tokenizer.Encode(x.Text)...)
			continue
		}
		if x.Size != (picture.Size{}) {
			size = x.Size
		}
		q, err := r.open(ctx, x, &size)
		if err != nil {
			return nil, err
		}
		if err := r.Package.Append(p, q); err != nil {
			return nil, fmt.Errorf("%s: %w", x.Text, err)
		}
	}
	return p, nil
}

// open reads a file that a prompt names, and leaves in size what the engine makes of that of a picture.
func (r *Reader) open(ctx context.Context, x prompt.Piece, size *picture.Size) (*Prompt, error) {
	what := "pictures"
	switch {
	case x.Kind == prompt.Picture && r.Tower != nil:
		return r.Tower.open(ctx, x.Text, size)
	case x.Kind == prompt.Sound && r.Ear != nil:
		return r.Ear.Open(ctx, x.Text)
	case x.Kind == prompt.Sound:
		what = "sound"
	}
	return nil, fmt.Errorf("%s: the package has no part that reads %s: %w", x.Text, what, tensor.ErrUnsupported)
}
