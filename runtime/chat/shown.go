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

// Marks stand for pictures and clips in the texts of a conversation while its template renders them. Nobody can write one: they are random.
type Marks struct {
	prefix string
	n      int
}

// NewMarks returns marks for the pictures and clips of a conversation.
func NewMarks() *Marks { return &Marks{prefix: rand.Text()} }

// Next returns the mark of the next picture or clip.
func (m *Marks) Next() string {
	m.n++
	return m.at(m.n - 1)
}

func (m *Marks) at(i int) string { return m.prefix + strconv.Itoa(i) + ";" }

// Len returns the number of marks.
func (m *Marks) Len() int { return m.n }

// Encode turns a rendered conversation into tokens, and marks into what is shown, their pictures and clips. Each text between them is
// encoded on its own, as the engine does. A template that does not write all of them once, in order, is a tensor.ErrUnsupported.
func (m *Marks) Encode(p *runtime.Package, rendered string, shown []*runtime.Prompt) (*runtime.Prompt, error) {
	out := &runtime.Prompt{}
	end, clips := "", 0 // what follows the one before, and the clips so far
	for i := 0; ; i++ {
		text, rest, found := rendered, "", false
		if i < m.n {
			if text, rest, found = strings.Cut(rendered, m.at(i)); !found {
				return nil, fmt.Errorf("the chat template leaves out a picture or clip: %w", tensor.ErrUnsupported)
			}
		}
		if strings.Contains(text, m.prefix) {
			return nil, fmt.Errorf("the chat template writes a picture or clip twice or in another order: %w", tensor.ErrUnsupported)
		}
		text = begun(text, end)
		if found {
			if shown[i].Clip() {
				clips++
			}
			var before string
			before, end = p.Config.Around(shown[i], clips)
			text = ended(text, before)
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
		if err := p.Append(out, shown[i]); err != nil {
			return nil, err
		}
		rendered = rest
	}
}

// begun is a text that begins with what stands after a picture or clip. A person who writes its first word, as prompts of generate
// need it, does not get it twice.
func begun(text, with string) string {
	if strings.HasPrefix(text, with) {
		return text
	}
	if words := strings.Fields(with); len(words) > 0 {
		text = strings.TrimPrefix(text, words[0])
	}
	return with + text
}

// ended is a text that ends with what stands before a picture or clip, like [begun].
func ended(text, with string) string {
	if strings.HasSuffix(text, with) {
		return text
	}
	if words := strings.Fields(with); len(words) > 0 {
		text = strings.TrimSuffix(text, words[len(words)-1])
	}
	return text + with
}

// mostPixels is the size of a picture for a tower that takes any size, unless a message asks for another one.
const mostPixels = 1 << 20

// part is a text of a message, or what a picture or clip becomes.
type part struct {
	text  string
	shown *runtime.Prompt
}

// ShownError is that of a message whose picture or clip cannot be read, or cannot stand where it is.
type ShownError struct{ Err error }

func (e *ShownError) Error() string { return e.Err.Error() }
func (e *ShownError) Unwrap() error { return e.Err }

// look reads the pictures and clips that a message of the user names, as <img>FILE</img> and <audio>FILE</audio>. Without a reader the
// message is a text.
func (d *Dialogue) look(ctx context.Context, message string) (*[]part, error) {
	if d.Reader == nil {
		return nil, nil
	}
	pieces, err := prompt.Parse(message)
	if err != nil {
		return nil, err
	}
	var list []part
	after := "" // what is written after the piece before
	for _, x := range pieces {
		if x.Kind == prompt.Text {
			if strings.HasSuffix(after, "\n") {
				x.Text = strings.TrimLeft(x.Text, " ") // which divides it from the mark
			}
			list = append(list, part{text: x.Text})
			continue
		}
		q, err := d.open(ctx, x)
		if err != nil {
			return nil, &ShownError{err}
		}
		_, after = d.pkg.Config.Around(q, 0)
		list = append(list, part{shown: q})
	}
	return &list, nil
}

// open reads the picture or clip in a file.
func (d *Dialogue) open(ctx context.Context, x prompt.Piece) (*runtime.Prompt, error) {
	switch t := d.Reader; {
	case x.Kind == prompt.Picture && t.Tower != nil:
		return d.openPicture(ctx, x)
	case x.Kind == prompt.Picture:
		return nil, fmt.Errorf("%s: the package has no part that reads pictures: %w", x.Text, tensor.ErrUnsupported)
	case t.Ear != nil:
		return t.Ear.Open(ctx, x.Text)
	}
	return nil, fmt.Errorf("%s: the package has no part that reads sound: %w", x.Text, tensor.ErrUnsupported)
}

// openPicture reads the picture in a file.
func (d *Dialogue) openPicture(ctx context.Context, x prompt.Piece) (*runtime.Prompt, error) {
	im, err := picture.Open(x.Text)
	if err != nil {
		return nil, err
	}
	size := x.Size
	if size == (picture.Size{}) {
		size, err = d.Reader.Tower.Fit(im.Size(), mostPixels)
	}
	var q *runtime.Prompt
	if err == nil {
		q, err = d.Reader.Tower.Look(ctx, im, size)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", x.Text, err)
	}
	return q, nil
}
