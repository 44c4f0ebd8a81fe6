package main

import (
	"math"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/recipes"
)

// Upper bounds of options, to catch typing errors: no package has more positions, no machine more threads.
const (
	mostTokens  = 1 << 20
	mostThreads = 1 << 10
)

// number returns the value of an integer flag, which must be between low and high.
func number(c *cli.Context, name string, low, high int) (int, error) {
	n := c.Int(name)
	if n < low || n > high {
		return 0, exit.Usagef("--%s must be between %d and %d, not %d", name, low, high, n)
	}
	return n, nil
}

// real returns the value of a float flag, which must be between low and high.
func real(c *cli.Context, name string, low, high float64) (float64, error) {
	v := c.Float64(name)
	switch {
	case v >= low && v <= high:
		return v, nil
	case high == math.MaxFloat64:
		return 0, exit.Usagef("--%s must be %g or more, not %g", name, low, v)
	}
	return 0, exit.Usagef("--%s must be between %g and %g, not %g", name, low, high, v)
}

// memoryOption returns the value of --memory in bytes.
func memoryOption(c *cli.Context) (int64, error) {
	n, err := recipes.ParseSize(c.String("memory"))
	if err != nil {
		return 0, exit.Usagef("--memory %v", err)
	}
	if n == 0 {
		return 0, exit.Usagef("--memory must be more than 0")
	}
	return int64(n), nil
}
