package main

import (
	"math"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/recipes"
)

// Bounds of options, against typing errors: no package has more positions, no machine more threads.
const (
	mostTokens  = 1 << 20
	mostThreads = 1 << 10
)

// number is the option of a name, which lies between two others.
func number(c *cli.Context, name string, low, high int) (int, error) {
	n := c.Int(name)
	if n < low || n > high {
		return 0, usagef("--%s is between %d and %d, not %d", name, low, high, n)
	}
	return n, nil
}

// real is the option of a name, a number between two others.
func real(c *cli.Context, name string, low, high float64) (float64, error) {
	v := c.Float64(name)
	switch {
	case v >= low && v <= high:
		return v, nil
	case high == math.MaxFloat64:
		return 0, usagef("--%s is a number that is %g or more, not %g", name, low, v)
	}
	return 0, usagef("--%s is between %g and %g, not %g", name, low, high, v)
}

// memoryOption is the option --memory in bytes.
func memoryOption(c *cli.Context) (int64, error) {
	n, err := recipes.ParseSize(c.String("memory"))
	if err != nil {
		return 0, usagef("--memory %v", err)
	}
	if n == 0 {
		return 0, usagef("--memory must be more than 0")
	}
	return int64(n), nil
}
