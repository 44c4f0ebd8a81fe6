package forward

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	// slabBytes is how much of a matrix is widened before it is multiplied by all tokens, unless a panel of rows is more.
	slabBytes = 16 << 20
	// readBytes is how much of a matrix a thread widens at a time, unless a panel of rows is more: it stays in the L2 cache until
	// it is packed.
	readBytes = 256 << 10
	// spanTokens and leastTokens are the most and fewest tokens of a product that a thread computes at a time: enough to lay rows of
	// the matrix out once for many tokens. The fewest columns are a panel, because a product with few tokens has nothing else to share.
	spanTokens, leastTokens = 256, 16
	// unitsPerThread splits the work so that other threads can take over the share of a delayed one.
	unitsPerThread = 4
)

// rowsIn is how many rows of cols floats, in whole panels, fit into that many bytes.
func rowsIn(bytes, cols int) int { return max(1, bytes/4/cols/kernel.PanelRows) * kernel.PanelRows }

// matrix is the weight of a linear layer.
type matrix struct {
	arch.Weight
	mu sync.Mutex
	// whole is the whole matrix, widened once, if it is kept.
	whole *kernel.Packed
	// version names it where only a device keeps it.
	version uint64
}

// addMatrix records a matrix that the computation multiplies by.
func (m *Model) addMatrix(w arch.Weight) {
	if m.matrices[w] != nil { // tied
		return
	}
	m.matrices[w] = &matrix{Weight: w, version: kernel.NewVersion()}
	m.weights.All += 4 * int64(w.Rows) * int64(w.Cols)
	m.weights.Stored += min(4, m.infos[w.Tensor].DType.Size()) * int64(w.Rows) * int64(w.Cols)
	m.weights.Slab = max(m.weights.Slab, 4*int64(min(w.Rows, rowsIn(slabBytes, w.Cols)))*int64(w.Cols))
	m.weights.read = max(m.weights.read, 4*int64(min(w.Rows, rowsIn(readBytes, w.Cols)))*int64(w.Cols))
}

// kept returns the whole matrix, which the first call widens; nil if it is not to be kept. After a cancelled call, the next one
// widens it.
func (m *Model) kept(ctx context.Context, w *matrix) (*kernel.Packed, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.whole != nil {
		return w.whole, nil
	}
	size := 4 * int64(w.Rows) * int64(w.Cols)
	if m.room.Add(-size) < 0 {
		m.room.Add(size)
		return nil, nil
	}
	t, err := m.open(w.Weight)
	p := new(kernel.Packed)
	if err == nil {
		err = m.widen(ctx, p, t, 0, w.Rows)
	}
	if err != nil {
		m.room.Add(size)
		return nil, err
	}
	w.whole = p
	return p, nil
}

// keepsAll reports whether all matrices are kept, or have room to be.
func (m *Model) keepsAll() bool {
	missing := int64(0)
	for _, w := range m.matrices {
		w.mu.Lock()
		if w.whole == nil {
			missing += 4 * int64(w.Rows) * int64(w.Cols)
		}
		w.mu.Unlock()
	}
	return missing <= m.room.Load()
}

// widen fills p with rows lo to lo+n-1 of a tensor.
func (m *Model) widen(ctx context.Context, p *kernel.Packed, t *weight, lo, n int) error {
	p.Resize(n, t.cols)
	share := (n + unitsPerThread*m.threads - 1) / (unitsPerThread * m.threads)
	step := min(rowsIn(readBytes, t.cols), (share+kernel.PanelRows-1)/kernel.PanelRows*kernel.PanelRows)
	return m.each(ctx, (n+step-1)/step, func(u int, b *buffer) error {
		at := u * step
		count := min(step, n-at)
		f := grow(&b.f32, count*t.cols)
		if err := t.rows(f, lo+at, b); err != nil {
			return err
		}
		p.PackRows(f, at, count, t.cols)
		return nil
	})
}

// output is a linear layer and the memory [tokens, Rows] for its results.
type output struct {
	of  *arch.Linear
	dst []float32
}

// linear computes a linear layer for n tokens x.
func (m *Model) linear(ctx context.Context, x []float32, n int, to output) error {
	f, err := m.factor(ctx, to)
	if err == nil && f.packed == nil {
		return m.stream(ctx, x, n, to.of, f)
	}
	if err == nil {
		multiply(m.threads, x, n, f)
	}
	return cmp.Or(err, context.Cause(ctx))
}

// unread returns the matrix of a linear layer for a device that reads it when it needs it.
func (m *Model) unread(ctx context.Context, l *arch.Linear) *kernel.Factor {
	w := m.matrices[l.Weight]
	return &kernel.Factor{Layout: kernel.ByPanel, Stride: w.Cols, Version: w.version, Stored: m.infos[w.Tensor].DType,
		Read: func(first, n int, use func(panels []float32) bool) bool {
			t, err := m.open(w.Weight)
			if err != nil {
				return false
			}
			p := m.slabs.Get().(*kernel.Packed)
			defer m.slabs.Put(p)
			return m.widen(ctx, p, t, first, n) == nil && use(p.Factor().Data)
		}}
}

// factor returns the matrix of a linear layer; without packed if it is not kept.
func (m *Model) factor(ctx context.Context, to output) (factor, error) {
	f := factor{dst: to.dst, width: to.of.Weight.Rows, stored: m.infos[to.of.Weight.Tensor].DType}
	var err error
	if to.of.Bias.Tensor != "" {
		if f.bias, err = m.vector(to.of.Bias); err != nil {
			return f, err
		}
	}
	f.packed, err = m.kept(ctx, m.matrices[to.of.Weight])
	return f, err
}

// stream computes a linear layer slab by slab.
func (m *Model) stream(ctx context.Context, x []float32, n int, l *arch.Linear, f factor) error {
	t, err := m.open(l.Weight)
	if err != nil {
		return err
	}
	f.packed = m.slabs.Get().(*kernel.Packed)
	defer m.slabs.Put(f.packed)
	step := rowsIn(slabBytes, l.Weight.Cols)
	for ; f.at < l.Weight.Rows; f.at += step {
		if err := m.widen(ctx, f.packed, t, f.at, min(step, l.Weight.Rows-f.at)); err != nil {
			return err
		}
		multiply(m.threads, x, n, f)
	}
	return nil
}

// factor is a matrix in memory, and where its products go: to the columns of dst [tokens, width] from column at on, to which the
// bias [width] or nil is added.
type factor struct {
	packed    *kernel.Packed
	bias, dst []float32
	at, width int
	unread    *kernel.Factor // in place of packed, what a device reads when it needs it
	of        *Linear        // whose weights are not laid out yet, as a device takes them from rows
	stored    tensor.DType   // of packed, if it is the weights of a checkpoint
	givesWay  bool           // see [GiveWay]
}

func (f *factor) missing() bool { return f.packed == nil && f.unread == nil }

// size is the number of rows and columns.
func (f *factor) size() (rows, cols int) {
	if f.of != nil {
		return f.of.Rows, f.of.Cols
	}
	return f.packed.Rows(), f.packed.Cols()
}

// right is the matrix as a device takes it.
func (f *factor) right() kernel.Factor {
	if l := f.of; l != nil {
		return kernel.Factor{Data: l.W, Layout: kernel.ByRow, Stride: l.Cols, Version: l.byRow, Turned: l.version}
	}
	if f.unread != nil {
		return *f.unread
	}
	r := f.packed.Factor()
	r.Stored = f.stored
	return r
}

// compute multiplies tokens from to to-1 by rows lo to hi-1 of the matrix. A sum is never split, so the division into units of
// work does not change it.
func (f *factor) compute(x []float32, from, to, lo, hi int) {
	cols := f.packed.Cols()
	f.packed.MulT(f.dst[from*f.width+f.at:], x[from*cols:], to-from, f.width, cols, lo, hi)
	for j := from; j < to && f.bias != nil; j++ {
		y := f.dst[j*f.width+f.at+lo : j*f.width+f.at+hi]
		kernel.Add(y, y, f.bias[f.at+lo:f.at+hi])
	}
}

// multiply computes the products of n tokens x with several matrices.
func multiply(threads int, x []float32, n int, all ...factor) {
	if kernel.HasDevice() {
		all = offload(threads, x, n, all)
	}
	total := 0
	for _, f := range all {
		if f.of != nil {
			f.of.pack()
		}
		total += f.packed.Rows()
	}
	if n == 0 || total == 0 {
		return
	}
	spans, part := division(threads, n, total)
	starts := make([]int, len(all)) // of the parts of each matrix
	parts := 0
	for i, f := range all {
		starts[i] = parts
		parts += (f.packed.Rows() + part - 1) / part
	}
	kernel.Parallel(threads, spans*parts, func(u, end int) {
		for ; u < end; u++ {
			i := len(all) - 1
			for starts[i] > u%parts {
				i--
			}
			lo := (u%parts - starts[i]) * part
			all[i].compute(x, n*(u/parts)/spans, n*(u/parts+1)/spans, lo, min(lo+part, all[i].packed.Rows()))
		}
	})
}

// offload lets the device compute products, and returns the others.
func offload(threads int, x []float32, n int, all []factor) (others []factor) {
	version := kernel.NewVersion()
	for _, f := range all {
		width, cols := f.size()
		if n == 0 || width == 0 || !kernel.Offload(&kernel.Product{
			Dst: f.dst[f.at:], Rows: n, Cols: width, Stride: f.width,
			Parts:    []kernel.Part{{A: kernel.Factor{Data: x, Layout: kernel.ByRow, Stride: cols, Version: version}, B: f.right(), K: cols}},
			GivesWay: f.givesWay,
		}) {
			others = append(others, f)
			continue
		}
		if f.bias == nil {
			continue
		}
		bias := f.bias[f.at : f.at+width]
		kernel.Parallel(threads, n, func(j, end int) {
			for ; j < end; j++ {
				y := f.dst[j*f.width+f.at:][:width]
				kernel.Add(y, y, bias)
			}
		})
	}
	return others
}

// tiles covers a product [n, cols] with calls of f for tokens from to to-1 and columns lo to hi-1, in parallel. lo is a
// multiple of kernel.PanelRows.
func tiles(threads, n, cols int, f func(from, to, lo, hi int)) {
	if n == 0 {
		return
	}
	spans, part := division(threads, n, cols)
	parts := (cols + part - 1) / part
	kernel.Parallel(threads, spans*parts, func(u, end int) {
		for ; u < end; u++ {
			lo := u % parts * part
			f(n*(u/parts)/spans, n*(u/parts+1)/spans, lo, min(lo+part, cols))
		}
	})
}

// divided is a result of division.
type divided struct{ threads, n, cols, spans, part int }

// divisions holds some results, because a step of a few tokens through a model divides the same products as the one before it, and the
// other threads wait meanwhile.
var divisions [1 << 8]atomic.Pointer[divided]

// division returns the number of spans of tokens, and the columns of a part, that let the threads finish a product [n, cols]
// soonest: all with the same number of units, and few of them, because each lays out its tokens and columns.
func division(threads, n, cols int) (spans, part int) {
	known := &divisions[uint(31*(31*threads+n)+cols)%uint(len(divisions))]
	if d := known.Load(); d != nil && d.threads == threads && d.n == n && d.cols == cols {
		return d.spans, d.part
	}
	spans, part = divide(threads, n, cols)
	known.Store(&divided{threads, n, cols, spans, part})
	return spans, part
}

func divide(threads, n, cols int) (spans, part int) {
	const (
		layTokens, layColumns = 16, 32 // the cost of laying out a column, in products with that many tokens, and of a token
		delay                 = 0.25   // of a unit, by which the last thread ends later than the others
	)
	best := math.Inf(1)
	least := (n + spanTokens - 1) / spanTokens
	most := max(least, min((n+leastTokens-1)/leastTokens, unitsPerThread*threads))
	for parts := 1; parts == 1 || parts <= min(cols/kernel.PanelRows, unitsPerThread*threads); parts++ {
		width := ((cols+parts-1)/parts + kernel.PanelRows - 1) / kernel.PanelRows * kernel.PanelRows
		count := (cols + width - 1) / width
		for s := least; s <= most && (s == least || s*count <= 2*unitsPerThread*threads); s++ {
			rounds := float64((s*count + threads - 1) / threads)
			cost := (rounds + delay) * float64((n+s-1)/s+layTokens) * float64(width+layColumns)
			if cost < best {
				best, spans, part = cost, s, width
			}
		}
	}
	return spans, part
}

// held holds weights in memory, keyed by their places in the description.
type held struct {
	linears map[*arch.Linear]*Linear
	norms   map[*arch.Norm]*Norm
}

func (h *held) linear(l *arch.Linear) *Linear {
	if h == nil {
		return nil
	}
	return h.linears[l]
}

func (h *held) norm(n *arch.Norm) *Norm {
	if h == nil {
		return nil
	}
	return h.norms[n]
}

// all lists linear layers.
func (h *held) all(of []*arch.Linear) (list []*Linear) {
	for _, l := range of {
		list = append(list, h.linear(l))
	}
	return list
}

// load reads those of the layers that are not in memory, and lists them.
func (h *held) load(of ...[]*arch.Linear) (read []*Linear, err error) {
	for _, l := range h.all(slices.Concat(of...)) {
		if l.InMemory() {
			continue
		}
		if err := l.Load(); err != nil {
			return read, err
		}
		read = append(read, l)
	}
	return read, nil
}

// Linear is y = W x + Bias. Products read weights that are not in memory from the source, a piece at a time.
type Linear struct {
	// Weight names the tensor.
	Weight arch.Weight
	// Rows are outputs, Cols inputs.
	Rows, Cols int
	// W is [Rows, Cols], nil before Load. Products use a copy in another layout: call Set after changing W.
	W []float32
	// Bias is [Rows], or nil. It may be changed at any time.
	Bias []float32

	of      *arch.Linear
	model   *Model
	threads int
	packed  kernel.Packed
	ready   bool   // packed holds W
	version uint64 // of W
	byRow   uint64 // of W as rows that a device lays out
}

// linearOf returns a linear layer that is not in memory.
func (m *Model) linearOf(d *arch.Linear) *Linear {
	return &Linear{Weight: d.Weight, Rows: d.Weight.Rows, Cols: d.Weight.Cols, of: d, model: m, threads: m.threads}
}

// loadLinear reads a linear layer.
func (m *Model) loadLinear(d *arch.Linear) (*Linear, error) {
	l := m.linearOf(d)
	return l, l.Load()
}

// InMemory reports whether products find the weights in memory.
func (l *Linear) InMemory() bool { return l.W != nil || l.ready }

// Load reads the weights of the source.
func (l *Linear) Load() (err error) {
	w := l.model.memory(l)
	l.W, l.ready, l.version, l.byRow = nil, false, kernel.NewVersion(), kernel.NewVersion()
	if err = l.model.read(w, l.Weight, 0); err != nil {
		return err
	}
	l.W = w
	if l.of.Bias.Tensor != "" {
		l.Bias, err = l.model.values(l.of.Bias)
	}
	return err
}

// memory returns memory for the weights of a layer, of arbitrary content, and gives it memory for its copy if there is some: both of a
// layer that was released, because new memory would have to be cleared first, by one thread.
func (m *Model) memory(l *Linear) []float32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	for i, s := range m.spare {
		if s.Rows == l.Rows && s.Cols == l.Cols && s.W != nil {
			m.spare = slices.Delete(m.spare, i, i+1)
			if l.packed.Bytes() == 0 {
				l.packed = s.packed
			}
			return s.W
		}
	}
	return kernel.Scratch(l.Rows * l.Cols)
}

// ReadRows writes rows of the weights from row first on to dst, [rows, Cols]: those in memory, or else those of the source.
func (l *Linear) ReadRows(dst []float32, first int) error {
	if l.W != nil {
		kernel.Copy(l.threads, dst, l.W[first*l.Cols:][:len(dst)])
		return nil
	}
	return l.model.read(dst, l.Weight, first)
}

// Pack keeps only the copy of the weights that products use: W is nil afterwards.
func (l *Linear) Pack() {
	l.pack()
	l.W = nil
}

// Drop gives the weights up: products use those of the source again.
func (l *Linear) Drop() { l.W, l.Bias, l.packed, l.ready = nil, nil, kernel.Packed{}, false }

// Set makes w [Rows, Cols] the weights and keeps the slice. w may be l.W itself, after its values have been changed.
func (l *Linear) Set(w []float32) {
	if len(w) != l.Rows*l.Cols {
		panic(fmt.Sprintf("internal error: forward.Linear.Set: %d weights for %d x %d", len(w), l.Rows, l.Cols))
	}
	l.W, l.ready, l.version, l.byRow = w, false, kernel.NewVersion(), kernel.NewVersion()
}

// apply is dst = x · Wᵀ + Bias: x [n, Cols], dst [n, Rows].
func (l *Linear) apply(dst, x []float32) {
	n := rows("Linear", x, l.Cols, dst, l.Rows)
	multiply(l.threads, x, n, l.factor(dst))
}

// product is apply, or reads weights that are not in memory slab by slab.
func (l *Linear) product(ctx context.Context, dst, x []float32) error {
	if l.InMemory() {
		l.apply(dst, x)
		return context.Cause(ctx)
	}
	return l.model.linear(ctx, x, rows("Linear", x, l.Cols, dst, l.Rows), output{l.of, dst})
}

// factor lays the weights out for products that go to dst [tokens, Rows], or leaves that to a device.
func (l *Linear) factor(dst []float32) factor {
	f := factor{packed: &l.packed, bias: l.Bias, dst: dst, width: l.Rows}
	if !l.ready && kernel.HasDevice() {
		f.of = l
		return f
	}
	l.pack()
	return f
}

// pack lays the weights out for products.
func (l *Linear) pack() {
	if l.ready {
		return
	}
	l.packed.Resize(l.Rows, l.Cols)
	kernel.Parallel(l.threads, (l.Rows+kernel.PanelRows-1)/kernel.PanelRows, func(lo, hi int) {
		lo, hi = lo*kernel.PanelRows, min(hi*kernel.PanelRows, l.Rows)
		l.packed.PackRows(l.W[lo*l.Cols:], lo, hi-lo, l.Cols)
	})
	l.ready = true
}

// backRows is how many rows of a matrix of cols columns, in whole segments of sums, the gradient of its inputs reads at a time.
func backRows(cols int) int {
	return max(1, slabBytes/4/cols/kernel.Segment) * kernel.Segment
}

// backward is back, or reads weights that are not in memory slab by slab, with the same bits.
func (l *Linear) backward(ctx context.Context, dst, dy []float32) error {
	if l.InMemory() {
		l.back(dst, dy)
		return context.Cause(ctx)
	}
	n, step := rows("Linear", dy, l.Rows, dst, l.Cols), min(l.Rows, backRows(l.Cols))
	a := l.model.arenas.Get().(*arena)
	defer l.model.arenas.Put(a)
	multiply, slab := kernel.MatMul, grow(&a.floats, step*l.Cols)
	for first := 0; first < l.Rows; first += step {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		k := min(step, l.Rows-first)
		if err := l.ReadRows(slab[:k*l.Cols], first); err != nil {
			return err
		}
		tiles(l.threads, n, l.Cols, func(from, to, lo, hi int) {
			multiply(dst[from*l.Cols+lo:], dy[from*l.Rows+first:], slab[lo:], to-from, hi-lo, k, l.Cols, l.Rows, l.Cols)
		})
		multiply = kernel.MatMulAdd
	}
	return nil
}

// backFactor is the matrix of the gradient of the inputs as a device takes it.
func (l *Linear) backFactor() kernel.Factor {
	return kernel.Factor{Data: l.W, Layout: kernel.ByPosition, Stride: l.Cols, Version: l.version}
}

// back is dst = dy · W, the gradient of the inputs: dy [n, Rows], dst [n, Cols].
func (l *Linear) back(dst, dy []float32) {
	n := rows("Linear", dy, l.Rows, dst, l.Cols)
	if kernel.HasDevice() && kernel.Offload(&kernel.Product{
		Dst: dst, Rows: n, Cols: l.Cols, Stride: l.Cols,
		Parts: []kernel.Part{{
			A: kernel.Factor{Data: dy, Layout: kernel.ByRow, Stride: l.Rows}, B: l.backFactor(), K: l.Rows,
		}},
	}) {
		return
	}
	tiles(l.threads, n, l.Cols, func(from, to, lo, hi int) {
		kernel.MatMul(dst[from*l.Cols+lo:], dy[from*l.Rows:], l.W[lo:], to-from, hi-lo, l.Rows, l.Cols, l.Rows, l.Cols)
	})
}

// Gradient adds the gradient of the weights to dw [Rows, Cols]: the sum over tokens of dy xᵀ, for x [tokens, Cols] and dy
// [tokens, Rows] as passed to a [Visitor]. Sums are those of kernel.MatMul, and each call adds one to dw.
func (l *Linear) Gradient(dw, x, dy []float32) {
	n := rows("Linear.Gradient", x, l.Cols, dy, l.Rows)
	if len(dw) != l.Rows*l.Cols {
		panic(fmt.Sprintf("internal error: forward.Linear.Gradient: %d values for %d x %d", len(dw), l.Rows, l.Cols))
	}
	if kernel.HasDevice() && kernel.Offload(&kernel.Product{
		Dst: dw, Rows: l.Rows, Cols: l.Cols, Stride: l.Cols, Sum: kernel.AddParts,
		Parts: []kernel.Part{{
			A: kernel.Factor{Data: dy, Layout: kernel.ByPosition, Stride: l.Rows},
			B: kernel.Factor{Data: x, Layout: kernel.ByPosition, Stride: l.Cols}, K: n,
		}},
	}) {
		return
	}
	kernel.Parallel(l.threads, (l.Rows+kernel.PanelRows-1)/kernel.PanelRows, func(lo, hi int) {
		lo, hi = lo*kernel.PanelRows, min(hi*kernel.PanelRows, l.Rows)
		left, product := make([]float32, (hi-lo)*n), make([]float32, (hi-lo)*l.Cols)
		transpose(left, dy[lo:], n, hi-lo, n, l.Rows)
		kernel.MatMul(product, left, x, hi-lo, l.Cols, n, l.Cols, n, l.Cols)
		sum := dw[lo*l.Cols : hi*l.Cols]
		kernel.Add(sum, sum, product)
	})
}

// transpose writes rows of src, of n elements each, as columns of dst.
func transpose(dst, src []float32, rows, n, lddst, ldsrc int) {
	const side = 16 // a square of cache lines
	for r := 0; r < rows; r += side {
		for p := 0; p < n; p += side {
			for i := r; i < min(r+side, rows); i++ {
				for j, v := range src[i*ldsrc+p:][:min(side, n-p)] {
					dst[(p+j)*lddst+i] = v
				}
			}
		}
	}
}
