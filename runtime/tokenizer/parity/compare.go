package parity

import (
	"slices"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// Count is how many strings there are and on how many of them the encoders differ.
type Count struct {
	Strings   int `json:"strings"`
	Different int `json:"different"`
}

// Share is the part that differs, from 0 to 1.
func (c Count) Share() float64 { return float64(c.Different) / float64(max(1, c.Strings)) }

func (c *Count) add(different bool) {
	c.Strings++
	if different {
		c.Different++
	}
}

// Difference is a string for which two encoders return different ids.
type Difference struct {
	String String
	A, B   []int32
}

// Result is the result of Compare.
type Result struct {
	Plain, Hard Count
	// Invalid counts the hard strings that are not UTF-8, which Hard leaves out: their ids are undefined, as the library
	// tokenizers rejects them and ours decodes them as Python does with errors="replace".
	Invalid Count
	// Groups counts by String.Group.
	Groups map[string]Count
	// First are the first differences of every half and group, in the order of the strings, at most MaxExamples of a
	// group.
	First []Difference
}

// MaxExamples is how many differences of a group Compare keeps.
const MaxExamples = 3

// FirstOf returns the first difference of a half that is UTF-8, or nil.
func (r *Result) FirstOf(hard bool) *Difference {
	for i := range r.First {
		if s := r.First[i].String; s.Hard == hard && utf8.ValidString(s.Text) {
			return &r.First[i]
		}
	}
	return nil
}

// Compare encodes strings by a and by b in the given number of goroutines, one at least. Both must be safe for
// concurrent use if that is more than one. The result does not depend on workers.
func Compare(a, b func(string) []int32, strings []String, workers int) Result {
	const batch = 64
	different := make([]bool, len(strings))
	var next atomic.Int64
	work := func() {
		for {
			end := int(next.Add(batch))
			if end-batch >= len(strings) {
				return
			}
			for i := end - batch; i < min(end, len(strings)); i++ {
				different[i] = !slices.Equal(a(strings[i].Text), b(strings[i].Text))
			}
		}
	}
	var wg sync.WaitGroup
	for range workers - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()

	r := Result{Groups: map[string]Count{}}
	for i, s := range strings {
		half := &r.Plain
		switch {
		case !utf8.ValidString(s.Text):
			half = &r.Invalid
		case s.Hard:
			half = &r.Hard
		}
		half.add(different[i])
		group := r.Groups[s.Group()]
		group.add(different[i])
		r.Groups[s.Group()] = group
		if different[i] && group.Different <= MaxExamples {
			r.First = append(r.First, Difference{s, a(s.Text), b(s.Text)})
		}
	}
	return r
}
