// Program quality makes packages of one checkpoint, at budgets of bytes and in uniform storage forms, measures them with
// llmexport compare and, if one is given, with an independent judge, and prints one Markdown table.
//
//	go run ./internal/quality -llmexport bin/llmexport -checkpoint DIR -text FILE -out DIR -budget 300MB -budget 400MB -spec w4-b64-asym \
//		-judge "python judge.py" -svg quality.svg -point Q4_K_M,396705472,0.0213
//
// Packages and what was computed for them stay in -out, so that a second run makes only what is missing. Perplexity and
// divergence are of the positions from -score-from on of -windows contexts. llmexport spreads the contexts over the text,
// a judge may take the first ones: give a text of no more than is scored to measure on the same.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

// list is a flag that may be repeated.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func main() {
	var s study
	var budgets, specs list
	var judge string
	flag.StringVar(&s.llmexport, "llmexport", "", "path of llmexport")
	flag.StringVar(&s.checkpoint, "checkpoint", "", "directory of the checkpoint")
	flag.StringVar(&s.text, "text", "", "text to measure on; the built-in one if absent")
	flag.StringVar(&s.out, "out", "", "directory for packages and everything computed on the way")
	flag.Var(&budgets, "budget", "make a package of at most so many bytes, such as 400MB; may be repeated")
	flag.Var(&specs, "spec", "make a package with this storage of the body, such as w4-b64-asym; may be repeated")
	flag.StringVar(&s.method, "method", "gptq", "quantize.method of all recipes, in YAML")
	flag.Var((*list)(&s.set), "set", "further key=value for llmexport run; may be repeated")
	flag.IntVar(&s.windows, "windows", 64, "contexts of the text, 0 for all")
	flag.IntVar(&s.window, "window", 512, "tokens of a context")
	flag.IntVar(&s.scoreFrom, "score-from", 256, "first position that is scored")
	flag.StringVar(&judge, "judge", "",
		"command that gets PACKAGE CHECKPOINT --text FILE --windows N --window N --score-from N --memory high|low --json and prints {\"kld\": nats}")
	flag.StringVar(&s.svg, "svg", "", "draw divergence over bytes to this file")
	flag.Var((*list)(&s.points), "point", "draw NAME,BYTES,KL too; may be repeated")
	flag.Parse()
	s.judge = strings.Fields(judge)
	err := s.check()
	if flag.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if err == nil {
		s.packages, err = packages(budgets, specs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quality:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	rows, err := s.run(ctx)
	if err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "quality:", err)
		os.Exit(1)
	}
	fmt.Print(markdown(rows, len(s.judge) > 0))
}

// check refuses flags that make no sense together.
func (s *study) check() error {
	switch {
	case s.llmexport == "" || s.checkpoint == "" || s.out == "":
		return errors.New("give -llmexport, -checkpoint and -out")
	case len(s.judge) > 0 && (s.text == "" || s.windows < 1):
		return errors.New("-judge needs -text and a number of -windows")
	case len(s.points) > 0 && s.svg == "":
		return errors.New("-point draws in what -svg names")
	}
	return nil
}
