package kernel

import (
	"sync/atomic"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Device computes elsewhere than on this CPU, with the bits that the CPU would give.
type Device interface {
	// Compute does some work and reports whether it did. If not, because it is too small or too large for the device or because the
	// device failed, the caller does it: what is changed is as before, a result that is written may be there in part. Several
	// goroutines may call it.
	Compute(w Work) bool
	// Settle brings a result that stays on the device, see [Product], to dst, its memory. It returns an error if the device lost it.
	Settle(dst []float32) error
	// Forget gives up the copy of what chains of tokens have left, see [Chain].
	Forget(p *Pasts)
	// Room is how many bytes the weights of chains of tokens, their keys and their values may have to stay on the device.
	Room() int64
}

// Pinner is a [Device] that copies to and from memory that it was told of without a copy between.
type Pinner interface {
	Device
	// Pin tells it of memory, which must stay until unpin is called, and nobody else uses before Pin returns. Work reads and writes it only before
	// it returns.
	Pin(x []float32) (unpin func())
}

// Shared is a [Device] that goroutines whose work has nothing in common may share.
type Shared interface {
	Device
	// Apart lets n goroutines at a time share the device, see [Apart]; 1 ends that. Calls may be nested: the first one counts.
	Apart(n int)
}

// Work is a [*Product], a [*Feedback], [*Feedbacks], a [*Descent], a [*Choice], a [*Refinement], a [*Factoring], a [*Chain], [*Divergences],
// [*Labels] or [*Draws].
type Work interface {
	// Multiplications is how many the work takes, or nearly so.
	Multiplications() int
}

// Product is a float32 product for a [Device]: a [Rows, Cols] matrix of sums over positions, for every part a · bᵀ in the order of
// sums of [MatMulT]. Row i of Dst begins at Dst[i*Stride].
type Product struct {
	Dst                []float32
	Rows, Cols, Stride int
	Sum                Sum
	Parts              []Part // one at [Write]
	// Stay lets the device keep a Dst that is added to: only [Settle] brings it here, and until then all products that are added to it
	// stay there, too. Code that reads or writes Dst otherwise calls Settle before. A product that the caller computes is settled.
	Stay bool
	// GivesWay is true of work that nothing waits for yet: a device does other work first.
	GivesWay bool
}

// Multiplications implements [Work].
func (p *Product) Multiplications() (n int) {
	for _, part := range p.Parts {
		n += p.Rows * p.Cols * part.K
	}
	return n
}

// Part is a pair of factors with K positions: A has as many rows as the product, B as many as it has columns.
type Part struct {
	A, B  Factor
	K     int
	Reach Reach
}

// Feedback is how gptq chooses grids and codes for rows, column by column with feedback of the errors: package quant defines it. All
// matrices are row-major and without gaps. A device leaves it to the caller if numbers outgrow float32.
type Feedback struct {
	Rows, Cols, Block, Candidates int // a row has Cols/Block blocks
	Bits                          int
	Half                          bool // scales and zero terms are rounded to half precision

	Work        []float32 // [Rows, Cols], what the codes stand for, by position; it may change
	Codes       []float32 // [Rows, Cols], signed, by column: the result
	Scale, Zero []float32 // [Rows, blocks]; they change where a block has a grid. Zero is nil for symmetric grids

	Factor     Factor    // [Cols, Cols], by position
	Importance []float32 // of positions
	Order      []int     // the column of every position; positions of a block lie together
}

// Multiplications implements [Work].
func (f *Feedback) Multiplications() int {
	const candidate, polish = 33, 434 // of a weight: three grids for each candidate, then those next to the best
	return f.Rows * f.Cols * (f.Cols/2 + candidate*f.Candidates + polish)
}

// Feedbacks are feedbacks that do not depend on each other: of some rows in several ways, for instance. A device may do them at the same time.
type Feedbacks struct {
	Of   []*Feedback
	Left []bool // for each, whether the device leaves it to the caller, if it does any
}

// Multiplications implements [Work].
func (f *Feedbacks) Multiplications() (n int) {
	for _, x := range f.Of {
		n += x.Multiplications()
	}
	return n
}

// Descent is the descent of gptq for rows whose codes have been chosen: package quant defines it. All matrices are row-major and
// without gaps.
type Descent struct {
	Rows, Cols, Block, Sweeps int // a row has Cols/Block blocks
	Bits                      int
	Half                      bool // scales and zero terms are rounded to half precision

	Codes       []float32 // [Rows, Cols], signed; they change
	Scale, Zero []float32 // [Rows, blocks]; they change. Zero is nil for symmetric grids
	Target      []float32 // [Rows, Cols]

	Hessian Factor // [Cols, Cols], by position
	Ridge   float32
	Sums    []float32 // of the rows of the damped Hessian over the block of the row
	Totals  []float64 // for every block the sum of them
}

// Multiplications implements [Work].
func (d *Descent) Multiplications() int { return d.Sweeps * d.Rows * d.Cols * d.Cols }

// Factoring is the inversion of the Cholesky factor of a matrix A, [N, N], in blocks of [ReachColumns] columns: package quant defines it.
// The lower triangle of A is replaced by that of the inverse, blocks of the diagonal whole. If the device does not do it, or A is not
// positive definite, A may be destroyed.
type Factoring struct {
	A []float32
	N int
	// Version names what A is afterwards, by position, so that the device may keep it; or 0.
	Version uint64
	// Invert stores the inverse of the factor of a block of the diagonal, both [n, n], on this CPU. It returns false if the block is not
	// positive definite.
	Invert func(inverse, block []float32, n int) bool
}

// Multiplications implements [Work].
func (f *Factoring) Multiplications() int { return f.N * f.N * f.N / 3 }

// Reach says which positions the sums have, by blocks of [ReachColumns] columns, so that B may be a triangle. Sums begin with the
// first of them.
type Reach uint8

const (
	// All positions.
	All Reach = iota
	// Until the last column of the block.
	Until
	// From the first column of the block on.
	From
)

// ReachColumns is the number of columns of a block, see [Reach].
const ReachColumns = 128

// Sum is what a product does with its sums.
type Sum uint8

const (
	// Write makes the sums the elements of Dst.
	Write Sum = iota
	// AddParts adds the sum of every part to Dst, part by part.
	AddParts
	// AddLower adds every segment of the sum of every part to the lower triangle of Dst, see [Packed.Syrk]. Elements above the
	// diagonal may change.
	AddLower
)

// Layout says where element (row, position) of a factor is.
type Layout uint8

const (
	// ByRow is f[row*ld+position].
	ByRow Layout = iota
	// ByPosition is f[position*ld+row].
	ByPosition
	// ByPanel is the layout of [Packed], ld being its number of columns.
	ByPanel
)

// Factor is a matrix in memory.
type Factor struct {
	Data   []float32
	Layout Layout
	Stride int
	// Version names the content of Data, so that a device need not be given it twice, see [NewVersion]; 0 is content without a name.
	Version uint64
	// Turned names the same memory by position, as the transposed matrix, so that a device that has that makes this one of it; or is 0.
	Turned uint64
	// Read, if not nil, takes the place of Data of panels that are not in memory: it calls use with those of rows first to first+n-1, of which first is
	// a multiple of PanelRows. It reports false if they cannot be read, or use does.
	Read func(first, n int, use func(panels []float32) bool) bool
	// Stored is BF16 or F16 if all of Data has values of that type, so that a device may keep them in 16 bits.
	Stored tensor.DType
}

var versions atomic.Uint64

// NewVersion returns a name for what is in some memory now, which no other content has.
func NewVersion() uint64 { return versions.Add(1) }

// Factor returns the matrix as the right-hand side of a [Product].
func (p *Packed) Factor() Factor {
	atomic.CompareAndSwapUint64(&p.version, 0, NewVersion())
	return Factor{Data: p.panels, Layout: ByPanel, Stride: p.cols, Version: atomic.LoadUint64(&p.version)}
}

// changed is called before rows or columns of p change. Only [Packed.Factor] gives p a new version: many threads change single rows
// and columns.
func (p *Packed) changed() {
	if atomic.LoadUint64(&p.version) != 0 {
		atomic.StoreUint64(&p.version, 0)
	}
}

// device is set once, before the first product, as the tier is.
var device Device

// SetDevice makes d the device of this process, for callers of [Offload]. It is called at most once, before any product.
func SetDevice(d Device) { device = d }

// Offload lets the device of this process do w, if there is one; otherwise, and if it reports false, the caller does it.
func Offload(w Work) bool { return device != nil && device.Compute(w) }

// HasDevice reports whether [Offload] may compute something.
func HasDevice() bool { return device != nil }

// Settle brings a result that the device of this process may have kept to dst, see [Product].
func Settle(dst []float32) error {
	if device == nil {
		return nil
	}
	return device.Settle(dst)
}

// Room is the memory of the device of this process for what chains of tokens keep, see [Device].
func Room() int64 {
	if device == nil {
		return 0
	}
	return device.Room()
}

// Pin tells the device of this process of memory that much work reads and writes, see [Pinner], and returns what ends this: after that the memory
// may be given up.
func Pin(x []float32) (unpin func()) {
	d, ok := device.(Pinner)
	if !ok {
		return func() {}
	}
	return d.Pin(x)
}

// Apart shares the device of this process among up to n goroutines whose work has nothing in common: it does that of one while others copy or compute.
// What it computes stays the same. It returns what ends this.
func Apart(n int) (end func()) {
	d, ok := device.(Shared)
	if !ok || n < 2 {
		return func() {}
	}
	d.Apart(n)
	return func() { d.Apart(1) }
}

// Forget lets the device of this process give up what it keeps for chains.
func Forget(p *Pasts) {
	if device != nil {
		device.Forget(p)
	}
}
