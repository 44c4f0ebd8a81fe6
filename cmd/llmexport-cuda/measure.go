package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/cmd/llmexport-cuda/internal/cuda"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/runtime/bench"
)

// addMeasure lets bench measure the products of calibration, on the card and on the CPU.
func addMeasure(c *cli.Command) {
	c.ArgsUsage = "PACKAGE, or --calibrate"
	c.Flags = append(c.Flags,
		&cli.BoolFlag{Name: "calibrate", Usage: "measure the products and factors of calibration instead, on the card and on the CPU"},
		&cli.StringFlag{Name: "shapes", Value: "4096x4096,1024x4096,12288x4096,4096x12288", Usage: "`LIST` of matrices OUTxIN for --calibrate"},
		&cli.StringFlag{Name: "heads", Usage: "`LIST` of heads VOCABULARYxIN for --calibrate, such as 151936x4096"},
		&cli.IntFlag{Name: "tokens", Value: 2048, Usage: "multiply them by `N` tokens at a time"})
	action := c.Action
	c.Action = func(c *cli.Context) error {
		if !c.Bool("calibrate") {
			return action(c)
		}
		if c.NArg() > 0 {
			return exit.Usagef("bench --calibrate takes no PACKAGE")
		}
		shapes, err := shapeList(c, "shapes")
		if err != nil {
			return err
		}
		var heads []cuda.Shape
		if c.IsSet("heads") {
			if heads, err = shapeList(c, "heads"); err != nil {
				return err
			}
		}
		tokens, times := c.Int("tokens"), c.Int("repetitions")
		if tokens < 1 || tokens > 1<<20 || times < 1 || times > 1000 {
			return exit.Usagef("--tokens must be 1 to 1048576 and --repetitions 1 to 1000, not %d and %d", tokens, times)
		}
		if len(cards) == 0 {
			return exit.Usagef("bench --calibrate needs a card, doctor says why there is none")
		}
		m, err := cards[0].Measure(shapes, heads, tokens, times)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			e := json.NewEncoder(c.App.Writer)
			e.SetIndent("", "  ")
			return e.Encode(m)
		}
		return writeMeasured(c.App.Writer, m)
	}
}

// shapeList parses the list of matrices of a flag.
func shapeList(c *cli.Context, flag string) (list []cuda.Shape, err error) {
	text := c.String(flag)
	for word := range strings.SplitSeq(text, ",") {
		var s cuda.Shape
		var rest string
		if n, _ := fmt.Sscanf(word, "%dx%d%s", &s.Rows, &s.Cols, &rest); n != 2 || s.Rows < 1 || s.Cols < 1 || max(s.Rows, s.Cols) > 1<<20 {
			return nil, exit.Usagef("--%s %q: %q is not a matrix such as 12288x4096", flag, text, word)
		}
		list = append(list, s)
	}
	return list, nil
}

func writeMeasured(w io.Writer, m *cuda.Measurement) error {
	s := sheet.New()
	s.Row("card", m.Card)
	s.Row("cpu", bench.CPUModel())
	s.Row("float32 peak", fmt.Sprintf("%.1f TFLOP/s", m.Peak))
	s.Row("to the card", fmt.Sprintf("%.1f GB/s, %.1f from pinned memory", m.Send, m.Pinned))
	s.Row("from the card", fmt.Sprintf("%.1f GB/s, %.1f to pinned memory", m.Receive, m.Returned))
	errs := []error{s.Write(w, true)}
	s = sheet.New("product", ">tokens", ">matrix", ">tile 128", ">tile 256", ">of peak", ">with copies", ">CPU", ">differ")
	for _, p := range m.Products {
		s.Row(p.Product, p.Tokens, fmt.Sprintf("%dx%d", p.Shape.Rows, p.Shape.Cols), fmt.Sprintf("%.1f", p.Tile128), fmt.Sprintf("%.1f", p.Tile256),
			fmt.Sprintf("%.0f %%", 100*max(p.Tile128, p.Tile256)/m.Peak), fmt.Sprintf("%.1f", p.Card), fmt.Sprintf("%.2f", p.CPU), p.Differ)
	}
	errs = append(errs, s.Write(w, false))
	s = sheet.New("work", ">matrix", ">with copies", ">CPU", ">differ")
	for _, p := range m.Works {
		s.Row(p.Work, fmt.Sprintf("%dx%d", p.Shape.Rows, p.Shape.Cols), fmt.Sprintf("%.1f", p.Card), fmt.Sprintf("%.2f", p.CPU), p.Differ)
	}
	errs = append(errs, s.Write(w, false))
	s = sheet.New("step of a token", ">windows", ">microseconds")
	for _, p := range m.Steps {
		s.Row(p.Step, p.Windows, fmt.Sprintf("%.1f", 1e6*p.Seconds))
	}
	return errors.Join(append(errs, s.Write(w, false))...)
}
