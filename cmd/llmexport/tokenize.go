package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/runtime/tokenizer"
	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
)

func (t *tool) tokenizeCommand() *cli.Command {
	return &cli.Command{
		Name:      "tokenize",
		Usage:     "show the tokens of a text",
		ArgsUsage: "PATH [TEXT]",
		Description: "PATH is a checkpoint, a package, or a file: tokenizer.json, .model, .tiktoken, tekken.json or .mtok. For a package or\n" +
			".mtok file, the text is tokenized as the engine does. When two tokenizers are compared, there are two columns, and the\n" +
			"exit code is 1 if they differ.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "file", Usage: "read the text from `FILE`; - is standard input"},
			&cli.BoolFlag{Name: "ids", Usage: "print the ids on one line"},
			jsonFlag(),
			&cli.BoolFlag{Name: "decode", Usage: "TEXT is ids; print the text they stand for"},
			&cli.BoolFlag{Name: "special", Usage: "add the special tokens around a text; a package always does"},
			&cli.BoolFlag{Name: "engine", Usage: "compare with the engine's version of the checkpoint's tokenizer"},
			&cli.StringFlag{Name: "source", Usage: "compare a package with `CHECKPOINT`"},
			&cli.StringFlag{Name: "color", Value: "auto", Usage: "colour the tokens: `WHEN` is auto, always or never"},
		},
		CustomHelpTemplate: help(
			"llmexport tokenize ./Qwen3-0.6B 'Hello, world'",
			"llmexport tokenize dist/qwen3-0.6b-int4 --source ./Qwen3-0.6B --file prompt.txt",
			"llmexport tokenize ./Qwen3-0.6B --decode '9707 11 1879'",
		),
		Action: t.tokenize,
	}
}

// tokens is a tokenizer, or the engine's version of one.
type tokens struct {
	name    string
	encode  func(string) []int32
	decode  func([]int32) string
	piece   func(int32) string
	special map[int32]bool
	size    int
}

// tokenLine is a token in JSON output. Text is absent if the bytes are not valid UTF-8.
type tokenLine struct {
	ID      int32  `json:"id"`
	Text    string `json:"text,omitempty"`
	Hex     string `json:"hex,omitempty"`
	Special bool   `json:"special,omitempty"`
}

func (t *tool) tokenize(c *cli.Context) error {
	text, err := t.tokenizeText(c)
	if err != nil {
		return err
	}
	color := isTerminal(t.screen) && os.Getenv("NO_COLOR") == ""
	switch when := c.String("color"); when {
	case "always", "never":
		color = when == "always"
	case "auto":
	default:
		return exit.Usagef("--color must be auto, always or never, not %q", when)
	}
	path := c.Args().First()
	sides, err := openSides(path, c.String("source"), c.Bool("engine"), c.Bool("special"))
	switch {
	case err != nil && isCheckpoint(path):
		return err
	case err != nil:
		if !isDirectory(path) { // a file of a package
			path = filepath.Dir(path)
		}
		return explained(c.Context, path, err)
	}
	if c.Bool("decode") {
		return t.decodeIDs(sides[0], text)
	}
	lists := make([][]int32, len(sides))
	for i, s := range sides {
		lists[i] = s.encode(text)
	}
	first := -1
	if len(lists) == 2 && !slices.Equal(lists[0], lists[1]) {
		first = firstDifference(lists[0], lists[1])
	}
	switch {
	case c.Bool("json"):
		err = t.printTokens(text, sides, lists, first)
	case c.Bool("ids"):
		for _, ids := range lists {
			fmt.Fprintln(t.stdout, strings.Trim(fmt.Sprint(ids), "[]"))
		}
	default:
		err = t.showTokens(text, sides, lists, first, color)
	}
	if err == nil && first >= 0 {
		err = errDiffer
	}
	return err
}

// tokenizeText returns the text from the command line, a file or standard input.
func (t *tool) tokenizeText(c *cli.Context) (string, error) {
	file := c.String("file")
	switch n := c.NArg(); {
	case n == 2 && file == "" && c.Args().Get(1) != "-":
		return c.Args().Get(1), nil
	case n == 2 && file == "":
		file = "-"
	case n == 1 && file != "":
	default:
		return "", hint(exit.Usagef("tokenize needs PATH and a text, or --file"), c.Command.HelpName+" --help shows examples")
	}
	if file == "-" {
		b, err := io.ReadAll(t.stdin)
		return string(b), err
	}
	b, err := os.ReadFile(file)
	return string(b), err
}

// openSides opens the tokenizer, or the two to compare.
func openSides(path, checkpoint string, compare, special bool) ([]*tokens, error) {
	mtok, err := mtokOf(path)
	if err != nil {
		return nil, err
	}
	if mtok != nil {
		if compare {
			return nil, exit.Usagef("%s is already tokenized as the engine does; use --source to compare it with a checkpoint", path)
		}
		e, err := engine.Open(mtok)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		sides := []*tokens{engineTokens(e)}
		if checkpoint != "" {
			t, err := source.LoadTokenizer(checkpoint)
			if err != nil {
				return nil, err
			}
			// The engine always adds the special tokens around a text.
			sides = slices.Insert(sides, 0, sourceTokens(t, true))
		}
		return sides, nil
	}
	if checkpoint != "" {
		return nil, exit.Usagef("--source is for packages, and %s is not one", path)
	}
	dir, load := filepath.Dir(path), source.LoadTokenizerFile
	if st, err := os.Stat(path); err != nil {
		return nil, err
	} else if st.IsDir() {
		dir, load = path, source.LoadTokenizer
	}
	t, err := load(path)
	if err != nil {
		return nil, err
	}
	sides := []*tokens{sourceTokens(t, special || compare)}
	if compare {
		b, err := source.PackagedTokenizer(dir, t)
		if err != nil {
			return nil, err
		}
		e, err := engine.Open(b)
		if err != nil {
			return nil, err
		}
		sides = append(sides, engineTokens(e))
	}
	return sides, nil
}

// mtokOf reads the tokenizer file of a package, or an .mtok file itself; nil if path is neither.
func mtokOf(path string) ([]byte, error) {
	dir, name := filepath.Dir(path), filepath.Base(path)
	if !strings.HasSuffix(name, ".mtok") {
		if dir, name = path, "tokenizer.mtok"; !isDirectory(dir) {
			return nil, nil
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	b, err := readBounded(root, name, maxTokenizer)
	if errors.Is(err, fs.ErrNotExist) && dir == path {
		return nil, nil
	}
	return b, err
}

func isDirectory(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

func sourceTokens(t *tokenizer.Tokenizer, special bool) *tokens {
	s := &tokens{
		name:    "source",
		encode:  func(text string) []int32 { return t.Encode(text, special) },
		decode:  func(ids []int32) string { return t.Decode(ids, false) },
		piece:   t.Piece,
		special: map[int32]bool{},
		size:    t.VocabSize(),
	}
	for _, a := range t.AddedTokens() {
		s.special[a.ID] = a.Special
	}
	return s
}

func engineTokens(e *engine.Tokenizer) *tokens {
	s := &tokens{
		name:    "engine",
		encode:  e.Encode,
		decode:  e.Decode,
		piece:   func(id int32) string { return e.Decode([]int32{id}) },
		special: map[int32]bool{},
		size:    e.VocabSize(),
	}
	for _, id := range e.Special() {
		s.special[id] = true
	}
	return s
}

// decodeIDs prints the text of ids that are separated by spaces or commas.
func (t *tool) decodeIDs(s *tokens, text string) error {
	var ids []int32
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,[]\n\r\t", r) }) {
		id, err := strconv.ParseInt(word, 10, 32)
		if err != nil || id < 0 || int(id) >= s.size {
			return exit.Usagef("%q is not an id; ids are below %d", word, s.size)
		}
		ids = append(ids, int32(id))
	}
	_, err := fmt.Fprintln(t.stdout, s.decode(ids))
	return err
}

// firstDifference returns the index of the first difference between two lists.
func firstDifference(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func (t *tool) printTokens(text string, sides []*tokens, lists [][]int32, first int) error {
	out := struct {
		Bytes      int         `json:"bytes"`
		Characters int         `json:"characters"`
		Source     []tokenLine `json:"source,omitempty"`
		Engine     []tokenLine `json:"engine,omitempty"`
		First      *int        `json:"first_difference,omitempty"`
	}{Bytes: len(text), Characters: utf8.RuneCountInString(text)}
	for i, s := range sides {
		list := make([]tokenLine, len(lists[i]))
		for j, id := range lists[i] {
			list[j] = tokenLine{ID: id, Special: s.special[id]}
			if p := s.piece(id); utf8.ValidString(p) {
				list[j].Text = p
			} else {
				list[j].Hex = fmt.Sprintf("%x", p)
			}
		}
		if s.name == "engine" {
			out.Engine = list
		} else {
			out.Source = list
		}
	}
	if first >= 0 {
		out.First = &first
	}
	return t.printJSON(out)
}

// showTokens prints a row for each token.
func (t *tool) showTokens(text string, sides []*tokens, lists [][]int32, first int, color bool) error {
	counts := make([]string, len(sides))
	pieces := make([][]string, len(sides))
	width := make([]int, len(sides))
	rows := 0
	for i, s := range sides {
		counts[i] = strconv.Itoa(len(lists[i]))
		rows = max(rows, len(lists[i]))
		width[i] = len(s.name)
		for _, id := range lists[i] {
			p := showPiece(s.piece(id), s.special[id])
			pieces[i] = append(pieces[i], p)
			width[i] = max(width[i], utf8.RuneCountInString(p))
		}
	}
	var b strings.Builder
	for i, s := range sides {
		if len(sides) > 1 {
			fmt.Fprintf(&b, "%8s  %-*s", "id", width[i], s.name)
		}
	}
	for j := range rows {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		for i, ids := range lists {
			if j >= len(ids) {
				fmt.Fprintf(&b, "%8s  %-*s", "", width[i], "")
				continue
			}
			fmt.Fprintf(&b, "%8d  %s", ids[j], paint(pieces[i][j], sides[i].special[ids[j]], j, color))
			if i < len(lists)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(pieces[i][j])))
			}
		}
		if j == first {
			b.WriteString("  <- differs")
		}
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s, %s, %s\n", counted(strings.Join(counts, " and "), "token"), counted(strconv.Itoa(utf8.RuneCountInString(text)), "character"),
		counted(strconv.Itoa(len(text)), "byte"))
	out := t.stdout
	if color {
		out = t.screen // all pieces are quoted
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// counted formats a number with a noun.
func counted(number, noun string) string {
	if number == "1" {
		return "1 " + noun
	}
	return number + " " + noun + "s"
}

// showPiece quotes a token, so that spaces are visible and control sequences are escaped; bytes that are not valid
// UTF-8 appear as hex. Special tokens are in brackets.
func showPiece(piece string, special bool) string {
	s := strconv.Quote(piece)
	if special {
		return "[" + s[1:len(s)-1] + "]"
	}
	return s
}

// paint gives neighbouring tokens different backgrounds, and special tokens a colour of their own.
func paint(s string, special bool, place int, color bool) string {
	code := "\x1b[48;5;24m"
	switch {
	case !color:
		return s
	case special:
		code = "\x1b[1;35m"
	case place%2 == 1:
		code = "\x1b[48;5;58m"
	}
	return code + s + "\x1b[0m"
}
