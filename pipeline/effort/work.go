// Package effort counts work. [Work] is an amount by kind: operations of products, bytes read, and so on. A machine does every
// kind at a rate of its own, see [Rates]. The work of passes through a model follows from its description, see [Text]. Code that
// computes counts its work in the [Tally] of its context, so that progress moves while a long step runs, and so that tests can
// compare predictions with what was done.
//
// Nothing here affects a result: work is counted for the user only.
package effort

import (
	"context"
	"sync/atomic"
)

// Kind is a kind of work that machines do at a rate of its own.
type Kind int

// The kinds.
const (
	// Product is operations, two for a multiplication and its addition, in float32 products of many rows.
	Product Kind = iota
	// Scalar is operations of loops that compute one number at a time.
	Scalar
	// Element is values that go through a function such as exp.
	Element
	// Trial is weights that the search for a grid compares with one candidate.
	Trial
	// Memory is bytes of weights that are read from memory for a product.
	Memory
	// Disk is bytes of files that are read or written, and hashed.
	Disk
	// Network is bytes that are downloaded.
	Network
	kinds
)

// kindNames are the names of kinds in JSON.
var kindNames = [kinds]string{"product", "scalar", "element", "trial", "memory", "disk", "network"}

func (k Kind) String() string { return kindNames[k] }

// Work is an amount of work of every kind.
type Work [kinds]float64

// Of returns n units of one kind.
func Of(k Kind, n float64) (w Work) {
	w[k] = n
	return w
}

// Plus returns the sum of works.
func (w Work) Plus(more ...Work) Work {
	for _, m := range more {
		for k := range w {
			w[k] += m[k]
		}
	}
	return w
}

// Times returns w repeated n times.
func (w Work) Times(n float64) Work {
	for k := range w {
		w[k] *= n
	}
	return w
}

// Operations is the number of floating-point operations of w, whatever their rate.
func (w Work) Operations() float64 { return w[Product] + w[Scalar] }

// Seconds is the time that w takes if its kinds follow one another. A kind without a rate takes none.
func (w Work) Seconds(r Rates) (s float64) {
	for k, n := range w {
		if r[k] > 0 {
			s += n / r[k]
		}
	}
	return s
}

// Rates are units of each kind in a second, with all threads of a run; 0 if unknown.
type Rates [kinds]float64

// Tally counts work as it is done. Its methods may be called from any goroutine, and on nil, where they do nothing.
type Tally struct{ done [kinds]atomic.Int64 }

// Add counts n units of one kind.
func (t *Tally) Add(k Kind, n int) {
	if t != nil {
		t.done[k].Add(int64(n))
	}
}

// AddWork counts work of several kinds.
func (t *Tally) AddWork(w Work) {
	for k, n := range w {
		t.Add(Kind(k), int(n))
	}
}

// Linear counts a product of n vectors with a matrix [rows, cols] that lies in memory as float32.
func (t *Tally) Linear(n, rows, cols int) { t.AddWork(linear(float64(n), rows, cols)) }

// Done returns the work that was counted so far.
func (t *Tally) Done() (w Work) {
	if t != nil {
		for k := range w {
			w[k] = float64(t.done[k].Load())
		}
	}
	return w
}

type tallyKey struct{}

// WithTally returns a context whose work is counted in t.
func WithTally(ctx context.Context, t *Tally) context.Context {
	return context.WithValue(ctx, tallyKey{}, t)
}

// TallyOf returns the tally of a context, or nil.
func TallyOf(ctx context.Context) *Tally {
	t, _ := ctx.Value(tallyKey{}).(*Tally)
	return t
}
