package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
)

func (t *tool) embedCommand() *cli.Command {
	return &cli.Command{
		Name:      "embed",
		Usage:     "turn texts into vectors with a package of an embedding model",
		ArgsUsage: "PACKAGE TEXT...",
		Description: "Prints a line of numbers for every text, as MNN's class Embedding computes them. What the model expects before a text,\n" +
			"such as \"query: \", is part of the text: the package's card lists it.",
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "stdin", Usage: "read texts from standard input, one a line"},
			jsonFlag(),
		}, append(computeFlags(), modeFlag())...),
		CustomHelpTemplate: help(
			"llmexport embed dist/minilm 'The cat sat.' 'A dog barked.'",
			"llmexport embed dist/minilm --stdin --json < lines.txt",
		),
		Action: t.embed,
	}
}

// embedding is the vector of a text.
type embedding struct {
	Text   string    `json:"text"`
	Tokens int       `json:"tokens"`
	Vector []float32 `json:"vector"`
}

func (t *tool) embed(c *cli.Context) error {
	texts, err := t.texts(c, "TEXT")
	if err != nil {
		return err
	}
	m, err := openSentence(c, false)
	if err != nil {
		return err
	}
	defer m.pkg.Close()
	var list []embedding
	for _, text := range texts {
		v, tokens, err := m.Embed(c.Context, m.session, text)
		if err != nil {
			return m.explain(c, err)
		}
		if c.Bool("json") {
			list = append(list, embedding{text, tokens, slices.Clone(v)})
			continue
		}
		if _, err := io.WriteString(t.stdout, numbers(v)+"\n"); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return t.printJSON(list)
	}
	return nil
}

// numbers writes a vector with as many digits as its float32 have.
func numbers(v []float32) string {
	var b strings.Builder
	for i, x := range v {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatFloat(float64(x), 'g', -1, 32))
	}
	return b.String()
}

// texts returns the arguments after PACKAGE, or with --stdin the lines of the standard input; what names one of them.
func (t *tool) texts(c *cli.Context, what string) ([]string, error) {
	given := c.Args().Tail()
	switch {
	case c.NArg() == 0 || len(given) == 0 && !c.Bool("stdin"):
		return nil, hint(exit.Usagef("%s needs PACKAGE and at least one %s", c.Command.Name, what), c.Command.HelpName+" --help shows examples")
	case len(given) > 0 && c.Bool("stdin"):
		return nil, exit.Usagef("--stdin and %s exclude each other", what)
	case len(given) > 0:
		return given, nil
	}
	lines := bufio.NewScanner(t.stdin)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		given = append(given, lines.Text())
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	if len(given) == 0 {
		return nil, exit.Usagef("standard input has no lines")
	}
	return given, nil
}
