// Program peers runs this program, MNN's llm_bench and llama.cpp's llama-bench in turns on the same model, and prints one
// table: prefill of 512 tokens, and decode of 64 after them.
//
//	go run ./internal/peers -llmexport bin/llmexport -pkg DIR -mnn llm_bench -llama llama-bench -gguf FILE -t 1,2 -r 5
//
// A program whose flag is not given is left out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
)

// The measurement that all programs can make: a prompt, and a decode after it.
const (
	prompt = 512
	decode = 64
)

func main() {
	var (
		pkg       = flag.String("pkg", "", "directory of the package that llmexport and MNN run")
		llmexport = flag.String("llmexport", "", "path of llmexport")
		mnn       = flag.String("mnn", "", "path of MNN's llm_bench")
		llama     = flag.String("llama", "", "path of llama.cpp's llama-bench")
		gguf      = flag.String("gguf", "", "the model of llama-bench")
		list      = flag.String("t", "1,2", "numbers of threads")
		rounds    = flag.Int("r", 5, "rounds; each runs every program once for every number of threads")
	)
	flag.Parse()
	threads, err := numbers(*list)
	switch {
	case err != nil:
	case flag.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case *rounds < 1:
		err = fmt.Errorf("-r %d: at least one round", *rounds)
	case *llmexport+*mnn+*llama == "":
		err = errors.New("give -llmexport, -mnn or -llama")
	case *llmexport+*mnn != "" && *pkg == "":
		err = errors.New("-llmexport and -mnn need -pkg")
	case (*llama == "") != (*gguf == ""):
		err = errors.New("-llama and -gguf go together")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(2)
	}
	var programs []program
	for _, p := range []program{ours(*llmexport, *pkg), engine(*mnn, *pkg), llamaCPP(*llama, *gguf)} {
		if p.path != "" {
			programs = append(programs, p)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	t, err := compare(ctx, programs, threads, *rounds)
	if err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
	fmt.Print(t.markdown())
}

func numbers(list string) ([]int, error) {
	var out []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-t %q: %q is not a number of threads", list, word)
		}
		out = append(out, n)
	}
	return out, nil
}

// compare runs all programs in turns, so that what else the machine does meets each of them alike.
func compare(ctx context.Context, programs []program, threads []int, rounds int) (*table, error) {
	// llm_bench leaves files where it runs.
	dir, err := os.MkdirTemp("", "peers")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for i := range programs {
		for _, path := range []*string{&programs[i].path, &programs[i].model} {
			if *path, err = filepath.Abs(*path); err != nil {
				return nil, err
			}
			if _, err := os.Stat(*path); err != nil {
				return nil, err
			}
		}
	}
	t := newTable(programs, threads)
	for round := range rounds {
		for _, n := range threads {
			for i, p := range programs {
				fmt.Fprintf(os.Stderr, "round %d of %d, %d threads: %s\n", round+1, rounds, n, p.name)
				s, err := p.measure(ctx, dir, n)
				if err != nil {
					return nil, fmt.Errorf("%s with %d threads: %w", p.name, n, err)
				}
				t.add(i, n, s)
			}
		}
	}
	return t, nil
}
