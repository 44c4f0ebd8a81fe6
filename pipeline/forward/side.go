package forward

import (
	"cmp"
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// States are [tokens, Width] between layers, see [arch.Decoder.Side]. Blocks, norms and sums see the stream [tokens, Hidden] alone; what is
// next to it belongs to the space.

// Stream returns the stream of states [tokens, Width]: the states themselves, or a copy where something is next to it.
func (m *Model) Stream(h []float32) []float32 {
	if m.decoder.Side == 0 {
		return h
	}
	stream, _ := m.part(h, func(n int) []float32 { return make([]float32, n) })
	return stream
}

// WithSide returns states [tokens, Width] with the given stream and zeros next to it.
func (m *Model) WithSide(stream []float32) []float32 {
	d := m.decoder
	if d.Side == 0 {
		return stream
	}
	n := len(stream) / d.Hidden
	h := make([]float32, n*d.Width())
	m.join(h, stream, make([]float32, n*d.Side))
	return h
}

// part copies states to memory from take: the stream, and what is next to it.
func (m *Model) part(h []float32, take func(n int) []float32) (stream, side []float32) {
	d := m.decoder
	n := len(h) / d.Width()
	stream, side = take(n*d.Hidden), take(n*d.Side)
	for i := range n {
		row := h[i*d.Width():]
		copy(stream[i*d.Hidden:(i+1)*d.Hidden], row)
		copy(side[i*d.Side:(i+1)*d.Side], row[d.Hidden:])
	}
	return stream, side
}

// join copies the parts of states back.
func (m *Model) join(h, stream, side []float32) {
	d := m.decoder
	for i := range len(stream) / d.Hidden {
		row := h[i*d.Width():]
		copy(row, stream[i*d.Hidden:(i+1)*d.Hidden])
		copy(row[d.Hidden:d.Width()], side[i*d.Side:(i+1)*d.Side])
	}
}

// parted calls f with the stream of states h, which it may change, as it may what is next to it.
func (s *space) parted(h []float32, f func(h []float32) error) error {
	if s.decoder.Side == 0 {
		return f(h)
	}
	var stream []float32
	stream, s.side = s.part(h, s.floats)
	if err := f(stream); err != nil {
		return err
	}
	s.join(h, stream, s.side)
	return nil
}

// columns copies width columns next to the stream, from column at on, to memory of the space.
func (s *space) columns(at, width int) []float32 {
	x := s.take(width)
	s.eachSide(s.side, at, func(mine, side []float32) { copy(mine, side) }, x)
	return x
}

// eachSide calls f with the rows of each x, [tokens, any width], and with as many columns of side [tokens, Side], from column at on.
func (s *space) eachSide(side []float32, at int, f func(mine, side []float32), all ...[]float32) {
	for _, x := range all {
		width := len(x) / s.tokens()
		s.eachToken(func(i int) { f(x[i*width:(i+1)*width], side[i*s.decoder.Side+at:][:width]) })
		at += width
	}
}

// lend puts keys and values next to the stream.
func (s *space) lend(at int, kv ...[]float32) {
	s.eachSide(s.side, at, func(mine, side []float32) { copy(side, mine) }, kv...)
}

// backColumns adds to the gradients of columns next to the stream those of their copies.
func (s *space) backColumns(at int, all ...[]float32) {
	s.eachSide(s.dSide, at, func(mine, side []float32) { kernel.Add(side, side, mine) }, all...)
}

// backLent adds to the gradients of keys and values those of attentions that borrow them.
func (s *space) backLent(at int, kv ...[]float32) {
	s.eachSide(s.dSide, at, func(mine, side []float32) {
		kernel.Add(mine, mine, side)
		clear(side)
	}, kv...)
}

// checkSide requires that columns lie next to the stream.
func (m *Model) checkSide(at, width int) error {
	if at < 0 || at > m.decoder.Side-width {
		return fmt.Errorf("%d columns from %d on, of %d: %w", width, at, m.decoder.Side, tensor.ErrCorrupt)
	}
	return nil
}

// checkPerLayer checks the second table.
func (m *Model) checkPerLayer() error {
	p, d := m.decoder.PerLayer, m.decoder
	if d.Side < 0 || d.Side > maxWidth {
		return fmt.Errorf("%d columns next to the stream: %w", d.Side, tensor.ErrCorrupt)
	}
	if p == nil {
		return nil
	}
	least, err := width("vectors of layers", len(d.Layers), p.Width)
	if err != nil {
		return err
	}
	all := p.Table.Cols // more where the description has some of the model's layers
	if all < least || all%p.Width != 0 {
		return fmt.Errorf("table of layers: %d columns for %d layers of %d: %w", all, len(d.Layers), p.Width, tensor.ErrCorrupt)
	}
	if !finite(p.Scale, 0) || !finite(p.ProjectionScale, 0) || !finite(p.TableScale, 0) || p.Pad < 0 || p.Pad >= d.Vocab {
		return fmt.Errorf("vectors of layers: factors %v, %v and %v, padding %d: %w", p.Scale, p.ProjectionScale, p.TableScale, p.Pad, tensor.ErrCorrupt)
	}
	return cmp.Or(
		m.checkSide(0, all), m.checkWeight("table of layers", p.Table, d.Vocab, all),
		m.checkLinear("projection to layers", &p.Projection, all, d.Hidden), m.checkNorm("norm of layers", &p.Norm, p.Width),
	)
}

// widened returns states [tokens, Width] for the stream of tokens.
func (m *Model) widened(ctx context.Context, stream []float32, tokens []int32) ([]float32, error) {
	h := m.WithSide(stream)
	if m.decoder.PerLayer == nil {
		return h, nil
	}
	return h, m.perLayer(ctx, h, tokens)
}

// perLayer sets what the second table gives for tokens, whose states are h [tokens, Width].
func (m *Model) perLayer(ctx context.Context, h []float32, tokens []int32) error {
	p, d := m.decoder.PerLayer, m.decoder
	all, stream := p.Table.Cols, m.Stream(h)
	x, norm, err := m.projected(ctx, stream)
	if err != nil {
		return err
	}
	norm.apply(x, x)
	table, err := m.open(p.Table)
	if err != nil {
		return err
	}
	return m.each(ctx, len(tokens), func(i int, b *buffer) error {
		row, to := grow(&b.f32, all), h[i*d.Width()+d.Hidden:][:all]
		if err := table.rows(row, int(tokens[i]), b); err != nil {
			return err
		}
		kernel.Scale(row, row, float32(p.TableScale))
		kernel.Add(row, row, x[i*all:(i+1)*all])
		kernel.Scale(to, row, float32(p.Scale))
		return nil
	})
}

// projected returns what the norm of [arch.PerLayer] reads, and the norm.
func (m *Model) projected(ctx context.Context, stream []float32) ([]float32, *Norm, error) {
	p, n := m.decoder.PerLayer, len(stream)/m.decoder.Hidden
	norm, err := m.readNorm(&p.Norm, m.vector)
	if err != nil {
		return nil, nil, err
	}
	x := make([]float32, n*p.Table.Cols)
	if err := m.linear(ctx, stream, n, output{&p.Projection, x}); err != nil {
		return nil, nil, err
	}
	m.scaleAll(x, p.ProjectionScale)
	return x, norm, nil
}

// perLayerBack adds to the gradient of the stream before the first layer that of what [arch.PerLayer] makes of it; dh are gradients of
// states [tokens, Width].
func (m *Model) perLayerBack(ctx context.Context, dStream, stream, dh []float32) error {
	p, d := m.decoder.PerLayer, m.decoder
	all := p.Table.Cols
	x, norm, err := m.projected(ctx, stream)
	if err != nil {
		return err
	}
	dy := make([]float32, len(x))
	for i := range len(dh) / d.Width() {
		copy(dy[i*all:(i+1)*all], dh[i*d.Width()+d.Hidden:])
	}
	m.scaleAll(dy, p.Scale)
	norm.back(x, dy, all, Visitor{})
	m.scaleAll(dy, p.ProjectionScale)
	dx := make([]float32, len(dStream))
	if err := m.linearOf(&p.Projection).backward(ctx, dx, dy); err != nil {
		return err
	}
	m.addAll(dStream, dx)
	return nil
}

// injection is [arch.Injection].
type injection struct{ *arch.Injection }

func (j injection) width() int { return j.Gate.Weight.Rows }

func (j injection) check(m *Model) error {
	if _, err := width("an injection", j.width()); err != nil {
		return err
	}
	switch j.Activation {
	case arch.SiLU, arch.GELU, arch.GELUTanh, arch.ReLU, arch.ReLU2, arch.QuickGELU:
	default:
		return fmt.Errorf("activation %q: %w", j.Activation, tensor.ErrUnsupported)
	}
	hidden := m.decoder.Hidden
	return cmp.Or(m.checkSide(j.At, j.width()), m.checkLinears(
		slot{"injection.gate", &j.Gate, j.width(), hidden}, slot{"injection.out", &j.Out, hidden, j.width()},
	))
}

func (j injection) cost() cost { return cost{token: 2 * j.width()} }

func (j injection) last() *arch.Linear { return &j.Out }

func (j injection) inputs() [][]*arch.Linear { return [][]*arch.Linear{{&j.Gate}, {&j.Out}} }

func (j injection) norms() []*arch.Norm { return nil }

func (j injection) act() *activation { return &activation{Activation: j.Activation} }

func (j injection) run(ctx context.Context, s *space, x []float32) ([]float32, error) {
	gate, err := s.project(ctx, x, &j.Gate)
	if err != nil {
		return nil, err
	}
	j.product(s, gate, gate, s.columns(j.At, j.width()))
	return gate, nil
}

// product writes act(gate) * vector to y, which may be the gate.
func (j injection) product(s *space, y, gate, vector []float32) {
	act := j.act()
	s.tally.Add(effort.Element, len(y))
	s.pieces(len(y), func(lo, hi int) {
		act.apply(y[lo:hi], gate[lo:hi])
		kernel.Mul(y[lo:hi], y[lo:hi], vector[lo:hi])
	})
}

func (j injection) record(ctx context.Context, s *space, x []float32) ([]float32, gradient, error) {
	gate, err := s.project(ctx, x, &j.Gate)
	if err != nil {
		return nil, nil, err
	}
	y, vector := s.take(j.width()), s.columns(j.At, j.width())
	j.product(s, y, gate, vector)
	return y, func(dy []float32, v Visitor) ([]float32, error) {
		act := j.act()
		s.tally.Add(effort.Element, len(dy))
		s.pieces(len(dy), func(lo, hi int) { act.back(dy[lo:hi], gate[lo:hi], vector[lo:hi]) })
		s.backColumns(j.At, vector)
		return s.gather(x, v, flow{&j.Gate, gate}), nil
	}, nil
}
