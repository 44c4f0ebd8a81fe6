package prompt_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/prompt"
)

func TestParse(t *testing.T) {
	t.Parallel()
	text := func(s string) prompt.Piece { return prompt.Piece{Text: s} }
	img := func(s string) prompt.Piece { return prompt.Piece{Kind: prompt.Picture, Text: s} }
	sized := func(s string, h, w int) prompt.Piece {
		return prompt.Piece{Kind: prompt.Picture, Text: s, Size: picture.Size{Height: h, Width: w}}
	}
	audio := func(s string) prompt.Piece { return prompt.Piece{Kind: prompt.Sound, Text: s} }
	for _, c := range []struct {
		in   string
		want []prompt.Piece
	}{
		{"", nil},
		{"What is it?", []prompt.Piece{text("What is it?")}},
		{"<img>a b.png</img>What?", []prompt.Piece{img("a b.png"), text("What?")}},
		{"x <img>a.png</img><audio>b.wav</audio> y", []prompt.Piece{text("x "), img("a.png"), audio("b.wav"), text(" y")}},
		{"<img><hw>448,672</hw>a.png</img>", []prompt.Piece{sized("a.png", 448, 672)}},
		{"<img>a.png<hw> 448 , 672 </hw></img>", []prompt.Piece{sized("a.png", 448, 672)}},
		{"<img>a<hw>1,2</hw>b<hw>3,4</hw></img>", []prompt.Piece{sized("ab<hw>3,4</hw>", 1, 2)}},
		{"<audio><hw>1,2</hw>a.wav</audio>", []prompt.Piece{audio("<hw>1,2</hw>a.wav")}},
		{"<img>a</img></img>", []prompt.Piece{img("a"), text("</img>")}},
		{"<img>a", []prompt.Piece{text("<img>a")}},
		{"<img>a</audio>b</img>", []prompt.Piece{img("a</audio>b")}},
		{"<img>a\n</img><audio>b</audio>", []prompt.Piece{text("<img>a\n</img>"), audio("b")}},
		{"<img>1 <audio>b</audio>", []prompt.Piece{text("<img>1 "), audio("b")}},
		{"<IMG>a</IMG>", []prompt.Piece{text("<IMG>a</IMG>")}},
		{"\xff<img>\xfe</img>", []prompt.Piece{text("\xff"), img("\xfe")}},
	} {
		got, err := prompt.Parse(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%q: %s", c.in, d)
		}
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"<img></img>":                                   "names no file",
		"<audio></audio>":                               "names no file",
		"<img><hw>1,2</hw></img>":                       "names no file",
		"<img><hw>448</hw>a</img>":                      "<hw>448</hw> is not HEIGHT,WIDTH in pixels",
		"<img><hw>448x672</hw>a</img>":                  "is not HEIGHT,WIDTH",
		"<img><hw>-448,672</hw>a</img>":                 "is not HEIGHT,WIDTH",
		"<img><hw>0,672</hw>a</img>":                    "is not HEIGHT,WIDTH",
		"<img><hw>100000,100000</hw>a</img>":            "is more than 67108864 pixels",
		"<img><hw>99999999999999999999,1</hw>a</img>":   "is more than 67108864 pixels",
		"fine <img>a</img> <img><hw>, </hw>b.png</img>": "is not HEIGHT,WIDTH",
	} {
		got, err := prompt.Parse(in)
		if _, ok := errors.AsType[*exit.UsageError](err); !ok || got != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %s", in, got, err, want)
		}
	}
}

// FuzzParse writes the pieces again and parses that: the pieces are the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "a<img>b</img>c", "<img><hw>1,2</hw>x</img><audio>y</audio>", "<img><audio>z</img></audio>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		pieces, err := prompt.Parse(in)
		if err != nil {
			return
		}
		var b strings.Builder
		for _, p := range pieces {
			if p.Kind == prompt.Picture && strings.Contains(p.Text, "</img>") {
				return // the name was on both sides of a size
			}
			switch {
			case p.Kind == prompt.Sound:
				fmt.Fprintf(&b, "<audio>%s</audio>", p.Text)
			case p.Size != picture.Size{}:
				fmt.Fprintf(&b, "<img><hw>%d,%d</hw>%s</img>", p.Size.Height, p.Size.Width, p.Text)
			case p.Kind == prompt.Picture:
				fmt.Fprintf(&b, "<img>%s</img>", p.Text)
			default:
				b.WriteString(p.Text)
			}
		}
		again, err := prompt.Parse(b.String())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(pieces, again); d != "" {
			t.Error(d)
		}
	})
}
