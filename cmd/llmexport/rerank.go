package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/sentence"
)

func (t *tool) rerankCommand() *cli.Command {
	return &cli.Command{
		Name:      "rerank",
		Usage:     "score documents for a query with a package of a reranker",
		ArgsUsage: "PACKAGE DOCUMENT...",
		Description: "Prints the documents by their scores, the best one first, as MNN's class Reranker computes them. The package is that of a\n" +
			"sequence classifier such as bge-reranker-v2-m3, or of a language model that answers yes or no, such as Qwen3-Reranker.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "query", Aliases: []string{"q"}, Usage: "score documents for `TEXT`"},
			&cli.StringFlag{Name: "instruct", Value: sentence.DefaultInstruct, Usage: "tell a language model to judge `TEXT`"},
			&cli.BoolFlag{Name: "stdin", Usage: "read documents from standard input, one a line"},
			jsonFlag(),
		}, append(computeFlags(), modeFlag())...),
		CustomHelpTemplate: help(
			"llmexport rerank dist/bge-reranker --query 'what is a panda?' 'A bear of China.' 'hi'",
			"llmexport rerank dist/qwen3-reranker --query 'capital of France' --stdin < lines.txt",
		),
		Action: t.rerank,
	}
}

// ranked is the score of a document.
type ranked struct {
	Index    int     `json:"index"`
	Score    float32 `json:"score"`
	Tokens   int     `json:"tokens"`
	Document string  `json:"document"`
}

func (t *tool) rerank(c *cli.Context) error {
	documents, err := t.texts(c, "DOCUMENT")
	if err != nil {
		return err
	}
	if !c.IsSet("query") {
		return exit.Usagef("rerank needs --query")
	}
	m, err := openSentence(c, true)
	if err != nil {
		return err
	}
	defer m.pkg.Close()
	query := sentence.Query{Instruct: c.String("instruct"), Text: c.String("query")}
	var list []ranked
	for i, d := range documents {
		score, tokens, err := m.Score(c.Context, m.session, query, d)
		if err != nil {
			return m.explain(c, err)
		}
		list = append(list, ranked{i, score, tokens, d})
	}
	slices.SortStableFunc(list, func(a, b ranked) int { return cmp.Compare(b.Score, a.Score) })
	if c.Bool("json") {
		return t.printJSON(list)
	}
	table := sheet.New(">score", ">document", "text")
	for _, r := range list {
		table.Row(strconv.FormatFloat(float64(r.Score), 'f', 6, 32), r.Index+1, r.Document)
	}
	return table.Write(t.stdout, false)
}

// sentenceModel is an open package that embeds texts or scores documents.
type sentenceModel struct {
	*sentence.Model
	pkg     *runtime.Package
	session *runtime.Session
	dir     string
}

// openSentence opens the package that the first argument names. The caller closes it.
func openSentence(c *cli.Context, rerank bool) (*sentenceModel, error) {
	mode, err := modeOption(c)
	if err != nil {
		return nil, err
	}
	o, err := computeOptions(c, mode)
	if err != nil {
		return nil, err
	}
	m := &sentenceModel{dir: c.Args().First()}
	if m.pkg, m.session, err = openAny(c, m.dir, o); err != nil {
		return nil, err
	}
	if m.Model, err = sentence.Open(m.pkg, rerank); err != nil {
		m.pkg.Close()
		return nil, fmt.Errorf("%s: %w", m.dir, err)
	}
	return m, nil
}

// explain returns the error of computing a text.
func (m *sentenceModel) explain(c *cli.Context, err error) error {
	if errors.As(err, new(*sentence.LengthError)) {
		return hint(exit.Usagef("%v", err), "the engine does not shorten texts either: divide it")
	}
	return explained(c.Context, m.dir, err)
}
