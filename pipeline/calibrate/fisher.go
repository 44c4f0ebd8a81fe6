package calibrate

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// fisherTokens is about how much text the gradients come from: with 4,096 tokens the estimated divergences of the matrices of one
// kind have ratios to the measured ones that spread by 8 % (standard deviation, tiny-qwen3), not less with four times as many.
const fisherTokens = 4096

// fisher holds sums over the tokens of some text of gradients of the log-likelihood of labels that are drawn from the model. Their
// second moments are its Fisher information.
type fisher struct {
	table *tableMoments
	// squares holds for every output of a linear layer the sum of its squared gradients, by tensor; tokens is the number of its
	// inputs, fewer than all for an expert.
	squares map[string][]float64
	inputs  map[string]int64
	names   []string // of the tensors, in the order of the model
	tokens  int64    // of the text
}

func newFisher(d *arch.Decoder) *fisher {
	f := &fisher{table: newTableMoments(d), squares: map[string][]float64{}, inputs: map[string]int64{}}
	d.Linears(func(name string, l *arch.Linear) {
		if t := l.Weight.Tensor; (name != headInput || !d.Tied) && f.squares[t] == nil {
			f.squares[t] = make([]float64, l.Weight.Rows)
			f.names = append(f.names, t)
		}
	})
	return f
}

// visitor adds the gradients of a backward pass, without the first skip tokens of windows of length tokens: keys and values of
// these have gradients, too. The head is seen in groups other than windows, and an expert with some tokens only, but there the
// gradients at the first tokens are ordinary or 0. Sums are in the order of the tokens, however they are grouped.
func (f *fisher) visitor(ops map[string]*op, length, skip, threads int) forward.Visitor {
	wants := func(l *forward.Linear) (x, dy bool) { return false, f.squares[l.Weight.Tensor] != nil } // not a tied head
	return forward.Visitor{Wants: wants, Linear: func(l *forward.Linear, _, dy []float32) {
		if _, wanted := wants(l); !wanted {
			return
		}
		sums := f.squares[l.Weight.Tensor]
		f.inputs[l.Weight.Tensor] += int64(len(dy) / l.Rows)
		x := ops[l.Weight.Tensor]
		whole := x.kind != headInput && !x.expert
		kernel.Parallel(threads, l.Rows, func(lo, hi int) {
			for i, row := 0, dy; len(row) > 0; i, row = i+1, row[l.Rows:] {
				if whole && i%length < skip {
					continue
				}
				for r, g := range row[lo:hi] {
					sums[lo+r] += float64(float64(g) * float64(g))
				}
			}
		})
	}}
}

// weights returns E[g^2] for every output of a linear layer, over all tokens of the text.
func (f *fisher) weights(tensor string) []float64 {
	list := make([]float64, len(f.squares[tensor]))
	for r, sum := range f.squares[tensor] {
		list[r] = sum / float64(f.tokens)
	}
	return list
}

// gradients runs the model forward and backward over some windows, a few at a time, each time a step of the journal. The sums so
// far are in a file.
func (x *measurement) gradients(ctx context.Context) error {
	x.fisher = newFisher(x.Decoder)
	length := len(x.Windows[0])
	windows := x.Windows[:min(len(x.Windows), (fisherTokens+length-1)/length)]
	at, err := x.restore()
	if err != nil {
		return err
	}
	pass := x.work.Gradients.Times(1 / float64(3*len(windows)*len(x.Decoder.Layers))) // of a window through a layer
	x.advance(pass.Times(float64(3 * at * len(x.Decoder.Layers))))
	v := x.fisher.visitor(x.of, length, x.Skip, x.Threads)
	var head *forward.Head
	for most := x.gradientWindows(); at < len(windows); {
		part := windows[at:min(at+most, len(windows))]
		if head == nil {
			if head, err = x.model.HeadWithin(x.Memory / weightShare); err != nil {
				return err
			}
		}
		g, err := x.gradient(ctx, x.model, head, part, at, lookupLevel, v, func(passes int) { x.advance(pass.Times(float64(passes * len(part)))) })
		if err != nil {
			return err
		}
		x.fisher.table.add(&x.Options, g)
		at += len(part)
		x.fisher.tokens = int64(at * length)
		if err := x.store(at); err != nil {
			return err
		}
	}
	return nil
}

// gradientPrefix begins the names of the files of gradients, and the names of their steps. The number of windows follows.
const gradientPrefix = "gradient-"

// store writes the sums over the first windows and adds the step. The file of the step before is removed then.
func (x *measurement) store(windows int) error {
	b := x.fisher.marshal()
	name := gradientPrefix + strconv.Itoa(windows)
	if err := replaceFile(filepath.Join(x.Dir, name), b); err != nil {
		return err
	}
	last := len(x.steps.finished) - 1
	if err := x.steps.add(finding{Name: name, SHA256: sumOf(b)}); err != nil || last < 0 {
		return err
	}
	return os.Remove(filepath.Join(x.Dir, x.steps.finished[last].Name))
}

// restore reads the sums that an earlier run has stored and returns their number of windows. If the file is damaged, the
// measurement begins again.
func (x *measurement) restore() (windows int, err error) {
	last := -1
	for i, s := range x.steps.finished {
		if strings.HasPrefix(s.Name, gradientPrefix) {
			last = i
		}
	}
	if last < 0 {
		return 0, x.steps.cut(0)
	}
	s := x.steps.finished[last]
	n, err := strconv.Atoi(strings.TrimPrefix(s.Name, gradientPrefix))
	b, errRead := os.ReadFile(filepath.Join(x.Dir, s.Name))
	if err != nil || errRead != nil || sumOf(b) != s.SHA256 || !x.fisher.unmarshal(b) {
		x.fisher = newFisher(x.Decoder)
		return 0, x.steps.cut(0)
	}
	x.fisher.tokens = int64(n * len(x.Windows[0]))
	x.steps.at = last + 1
	return n, nil
}

// fields returns the sums in the order in which they are stored.
func (f *fisher) fields() (wide [][]float64, narrow [][]float32) {
	for _, name := range f.names {
		wide = append(wide, f.squares[name])
	}
	return wide, [][]float32{f.table.head.hessian, f.table.lookup.hessian}
}

// marshal returns the sums, little endian.
func (f *fisher) marshal() []byte {
	var b []byte
	for _, name := range f.names {
		b = binary.LittleEndian.AppendUint64(b, uint64(f.inputs[name]))
	}
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f.table.rest))
	b = binary.LittleEndian.AppendUint64(b, uint64(f.table.head.tokens))
	wide, narrow := f.fields()
	for _, list := range wide {
		for _, v := range list {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
	}
	for _, list := range narrow {
		b = putFloats(b, list)
	}
	return b
}

// unmarshal reads the output of marshal, and reports whether it has the right size.
func (f *fisher) unmarshal(b []byte) bool {
	wide, narrow := f.fields()
	size := 8 * (len(f.names) + 2)
	for _, list := range wide {
		size += 8 * len(list)
	}
	for _, list := range narrow {
		size += 4 * len(list)
	}
	if len(b) != size {
		return false
	}
	next := func() uint64 {
		v := binary.LittleEndian.Uint64(b)
		b = b[8:]
		return v
	}
	for _, name := range f.names {
		f.inputs[name] = int64(next())
	}
	f.table.rest = math.Float64frombits(next())
	f.table.head.tokens = int64(next())
	f.table.lookup.tokens = f.table.head.tokens
	for _, list := range wide {
		for i := range list {
			list[i] = math.Float64frombits(next())
		}
	}
	for _, list := range narrow {
		kernel.F32FromBytes(list, b[:4*len(list)])
		b = b[4*len(list):]
	}
	return true
}

// fewTokens is how many tokens of the average expert of its layer are added to the gradients of an expert, so that one that few
// tokens reached, or none, is not taken for useless.
const fewTokens = 16

// share adds the gradients of fewTokens to every one of the given experts of a layer.
func (f *fisher) share(experts []*op) {
	var sum float64
	var inputs int64
	for _, e := range experts {
		for _, v := range f.squares[e.tensor] {
			sum += v
		}
		inputs += f.inputs[e.tensor]
	}
	if inputs == 0 {
		return
	}
	for _, e := range experts {
		squares := f.squares[e.tensor]
		add := fewTokens * sum / float64(inputs) / float64(len(squares))
		for r := range squares {
			squares[r] += add
		}
	}
}
