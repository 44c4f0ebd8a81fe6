package arch

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Range returns an integer from lo to hi, both included, or missing if the key is missing.
func (c *Config) Range(key string, lo, hi, missing int) int {
	v := c.take(key)
	if v == nil {
		return missing
	}
	n, problem := integer(v, lo, hi)
	if problem != "" {
		c.Wrong(key, "%s", problem)
		return missing
	}
	return n
}

// Ints returns a list of integers from lo to hi, both included, or nil if the key is missing.
func (c *Config) Ints(key string, lo, hi int) []int {
	var out []int
	c.list(key, "integers", func(item any) string {
		n, problem := integer(item, lo, hi)
		out = append(out, n)
		return problem
	})
	if !c.Good(key) {
		return nil
	}
	return out
}

// Floats returns a list of numbers from lo to hi, both included, or nil if the key is missing.
func (c *Config) Floats(key string, lo, hi float64) []float64 {
	var out []float64
	c.list(key, "numbers", func(item any) string {
		number, ok := item.(json.Number)
		f, err := strconv.ParseFloat(string(number), 64)
		out = append(out, f)
		switch {
		case !ok:
			return show(item) + " is not a finite number"
		case err != nil || f < lo || f > hi:
			return fmt.Sprintf("%s is not between %g and %g", show(item), lo, hi)
		}
		return ""
	})
	if !c.Good(key) {
		return nil
	}
	return out
}

// Null reports whether the key exists with the value null, which for some keys differs from a missing one.
func (c *Config) Null(key string) bool {
	v, there := c.fields.values[key]
	return there && v == nil
}

// Inert marks keys that have no effect on what a family computes, with any value.
func (c *Config) Inert(keys ...string) {
	for _, key := range keys {
		c.take(key)
	}
}

// Only rejects a key whose value, written as in JSON, is none of those given. A missing key or null is accepted.
func (c *Config) Only(key string, values ...string) {
	v := c.take(key)
	if v == nil {
		return
	}
	text := show(v)
	for _, want := range values {
		if text == want {
			return
		}
	}
	if len(values) == 0 {
		c.Refuse(key, "%s is not supported", text)
		return
	}
	c.Refuse(key, "%s is not supported, only %s", text, values[0])
}

// list calls f with the items of a list and records the first problem that it returns.
func (c *Config) list(key, what string, f func(item any) (problem string)) {
	v := c.take(key)
	if v == nil {
		return
	}
	list, ok := v.([]any)
	if !ok {
		c.Wrong(key, "%s is not a list of %s", show(v), what)
		return
	}
	for i, item := range list {
		if problem := f(item); problem != "" {
			c.Wrong(key, "entry %d: %s", i, problem)
			return
		}
	}
}

// integer parses a number of a config file, or returns what is wrong with it.
func integer(v any, lo, hi int) (n int, problem string) {
	number, ok := v.(json.Number)
	i, err := strconv.ParseInt(string(number), 10, 64)
	switch {
	case !ok || err != nil:
		return lo, show(v) + " is not an integer"
	case i < int64(lo) || i > int64(hi):
		return lo, fmt.Sprintf("%d is not between %d and %d", i, lo, hi)
	}
	return int(i), ""
}
