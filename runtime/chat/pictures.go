package chat

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/prompt"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Marks stand for pictures in the texts of a conversation while its template renders them. Nobody can write one: they are random.
type Marks struct {
	prefix string
	n      int
}

// NewMarks returns marks for the pictures of a conversation.
func NewMarks() *Marks { return &Marks{prefix: rand.Text()} }

// Next returns the mark of the next picture.
func (m *Marks) Next() string {
	m.n++
	return m.at(m.n - 1)
}

func (m *Marks) at(i int) string { return m.prefix + strconv.Itoa(i) + ";" }

// Len returns the number of marks.
func (m *Marks) Len() int { return m.n }

// Encode turns a rendered conversation into tokens, and marks into their pictures. Each text between pictures is encoded on its
// own, as the engine does. A template that does not write all pictures once, in order, is a tensor.ErrUnsupported.
func (m *Marks) Encode(p *runtime.Package, rendered string, pictures []*runtime.Prompt) (*runtime.Prompt, error) {
	out := &runtime.Prompt{}
	for i := 0; ; i++ {
		text, rest, found := rendered, "", false
		if i < m.n {
			if text, rest, found = strings.Cut(rendered, m.at(i)); !found {
				return nil, fmt.Errorf("the chat template leaves out a picture: %w", tensor.ErrUnsupported)
			}
		}
		if strings.Contains(text, m.prefix) {
			return nil, fmt.Errorf("the chat template writes a picture twice or in another order: %w", tensor.ErrUnsupported)
		}
		if after := p.Config.LLMExport.AfterPicture; i > 0 && !strings.HasPrefix(text, after) {
			text = after + text
		}
		if before := p.Config.LLMExport.BeforePicture; found && !strings.HasSuffix(text, before) {
			text += before
		}
		if text != "" {
			tokens, err := p.Tokenizer.TryEncode(text)
			if err != nil {
				return nil, err
			}
			out.Tokens = append(out.Tokens, tokens...)
		}
		if !found {
			return out, p.CheckPictures(out)
		}
		if err := p.Append(out, pictures[i]); err != nil {
			return nil, err
		}
		rendered = rest
	}
}

// mostPixels is the size of a picture for a tower that takes any size, unless a message asks for another one.
const mostPixels = 1 << 20

// part is a text of a message, or a picture.
type part struct {
	text    string
	picture *runtime.Prompt
}

// PictureError is that of a message whose picture cannot be read, or cannot stand where it is.
type PictureError struct{ Err error }

func (e *PictureError) Error() string { return e.Err.Error() }
func (e *PictureError) Unwrap() error { return e.Err }

// look reads the pictures that a message of the user names, as <img>FILE</img>. Without a tower the message is a text.
func (d *Dialogue) look(ctx context.Context, message string) (*[]part, error) {
	if d.Tower == nil {
		return nil, nil
	}
	pieces, err := prompt.Parse(message)
	if err != nil {
		return nil, err
	}
	var list []part
	for i, x := range pieces {
		switch x.Kind {
		case prompt.Text:
			if i > 0 && d.pkg.Config.LLMExport.AfterPicture != "" {
				x.Text = strings.TrimLeft(x.Text, " ") // which divides it from the mark
			}
			list = append(list, part{text: x.Text})
		case prompt.Picture:
			q, err := d.open(ctx, x)
			if err != nil {
				return nil, &PictureError{err}
			}
			list = append(list, part{picture: q})
		default:
			return nil, fmt.Errorf("%s: the package has no part that reads sound: %w", x.Text, tensor.ErrUnsupported)
		}
	}
	return &list, nil
}

// open reads the picture in a file.
func (d *Dialogue) open(ctx context.Context, x prompt.Piece) (*runtime.Prompt, error) {
	im, err := picture.Open(x.Text)
	if err != nil {
		return nil, err
	}
	size := x.Size
	if size == (picture.Size{}) {
		size, err = d.Tower.Fit(im.Size(), mostPixels)
	}
	var q *runtime.Prompt
	if err == nil {
		q, err = d.Tower.Look(ctx, im, size)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", x.Text, err)
	}
	return q, nil
}
