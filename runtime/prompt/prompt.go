// Package prompt splits a prompt into text and the pictures and sounds that it names, as MNN's LLM engine does: `<img>FILE</img>`
// with an optional `<hw>HEIGHT,WIDTH</hw>` inside, and `<audio>FILE</audio>`.
//
// Marks name files, so only text of the person at the keyboard may be parsed. A server that parsed text of its clients would read
// any file for them.
package prompt

import (
	"regexp"
	"strconv"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/runtime/picture"
)

// Kind says what a piece is.
type Kind int

// The kinds of pieces.
const (
	Text Kind = iota
	Picture
	Sound
)

// Piece is a part of a prompt.
type Piece struct {
	Kind Kind
	// Text is the text, or the name in the mark: a path, or a name such as image_0 for data that is passed with the prompt.
	Text string
	// Size is what `<hw>` asks for; zero if it is missing. The engine then uses the size of the picture before, also of an earlier
	// prompt, or `image_size` of the package.
	Size picture.Size
}

// The engine's patterns are those of ECMAScript: a dot matches no end of line, so a mark lies on one line.
const (
	marks = `<img>([^\n\r]*?)</img>|<audio>([^\n\r]*?)</audio>`
	sizes = `<hw>([^\n\r]*?)</hw>`
)

// Parse splits a prompt. Pieces of text are never empty and are to be tokenized one by one. A mark that is not closed on its line
// is text. A mark without a name and a `<hw>` that holds anything but two positive numbers are an [exit.UsageError]: the engine
// would go on with an undefined size.
func Parse(text string) ([]Piece, error) {
	mark, size := regexp.MustCompile(marks), regexp.MustCompile(sizes)
	var list []Piece
	end := 0
	for _, m := range mark.FindAllStringSubmatchIndex(text, -1) {
		if m[0] > end {
			list = append(list, Piece{Text: text[end:m[0]]})
		}
		end = m[1]
		p := Piece{Kind: Picture}
		if m[2] >= 0 {
			p.Text = text[m[2]:m[3]]
			if at := size.FindStringSubmatchIndex(p.Text); at != nil {
				var err error
				if p.Size, err = parseSize(p.Text[at[2]:at[3]]); err != nil {
					return nil, err
				}
				p.Text = p.Text[:at[0]] + p.Text[at[1]:]
			}
		} else {
			p = Piece{Kind: Sound, Text: text[m[4]:m[5]]}
		}
		if p.Text == "" {
			return nil, exit.Usagef("%s in the prompt names no file", text[m[0]:m[1]])
		}
		list = append(list, p)
	}
	if end < len(text) {
		list = append(list, Piece{Text: text[end:]})
	}
	return list, nil
}

// parseSize reads "HEIGHT,WIDTH", with spaces where the engine skips them.
func parseSize(s string) (picture.Size, error) {
	m := regexp.MustCompile(`^\s*([1-9]\d*)\s*,\s*([1-9]\d*)\s*$`).FindStringSubmatch(s)
	if m == nil {
		return picture.Size{}, exit.Usagef("<hw>%s</hw> is not HEIGHT,WIDTH in pixels", s)
	}
	h, err := strconv.Atoi(m[1])
	w, err2 := strconv.Atoi(m[2])
	if err != nil || err2 != nil || h > picture.MaxPixels/w {
		return picture.Size{}, exit.Usagef("<hw>%s</hw> is more than %d pixels", s, picture.MaxPixels)
	}
	return picture.Size{Height: h, Width: w}, nil
}
