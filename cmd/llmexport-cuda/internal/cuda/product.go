package cuda

import (
	"slices"
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// lanes is how many pieces of a product are worked on at a time: while one is computed, others travel.
const lanes = 4

// pieceRows is the number of rows that pieces are multiples of: those of a tile. It is a multiple of kernel.PanelRows.
const pieceRows = 128

// factor is a matrix on the card, as the kernels take it: element (row r, position p) is at r/32*panel + p*step + r%32.
type factor struct {
	at          uint64
	panel, step int64
	narrow      int32 // how elements of 16 bits are stored, or 0
}

// panels is a factor in panels of k positions.
func panels(at uint64, k int) factor {
	return factor{at, int64(kernel.PanelRows * k), kernel.PanelRows, 0}
}

// from is a factor without its first rows, a multiple of those of a panel.
func (f factor) from(row int) factor {
	size := 4
	if f.narrow != 0 {
		size = 2
	}
	f.at += uint64(size * row / kernel.PanelRows * int(f.panel))
	return f
}

// narrow is how elements of a factor are stored on the card in 16 bits: 1 as BF16, 2 as F16, or 0 if they are not.
func narrow(f kernel.Factor) int32 {
	if f.Layout == kernel.ByPanel {
		switch f.Stored {
		case tensor.BF16:
			return 1
		case tensor.F16:
			return 2
		}
	}
	return 0
}

// factorOf is a factor at its place on the card.
func factorOf(f kernel.Factor, at uint64, rows, k int) factor {
	switch f.Layout {
	case kernel.ByRow:
		return panels(at, k)
	case kernel.ByPanel:
		p := panels(at, f.Stride)
		p.narrow = narrow(f)
		return p
	}
	return factor{at, kernel.PanelRows, int64((rows + 3) &^ 3), 0}
}

// bytesOf is the memory of a factor on the card.
func bytesOf(f kernel.Factor, rows, k int) uint64 {
	if f.Layout == kernel.ByRow {
		return panelBytes(rows, k)
	}
	if f.Layout == kernel.ByPanel {
		k = f.Stride
		if narrow(f) != 0 {
			return panelBytes(rows, k) / 2
		}
		return panelBytes(rows, k)
	}
	m := matrixOf(f, rows, k)
	return m.bytes()
}

// panelBytes is the size of so many rows in panels.
func panelBytes(rows, k int) uint64 {
	return 4 * uint64((rows+kernel.PanelRows-1)/kernel.PanelRows*kernel.PanelRows) * uint64(k)
}

// rawRows is how many rows of k positions of a right-hand side are put into panels at a time.
func (e *Engine) rawRows(k int) int { return max(1, e.slot/4/k/kernel.PanelRows) * kernel.PanelRows }

// bring copies a right-hand side to its place on the card.
func (e *Engine) bring(to uint64, f kernel.Factor, rows, k int) bool {
	s := e.streams[0]
	if f.Layout != kernel.ByRow {
		return e.send(s, to, f, rows, k) && e.fence(s)
	}
	step := e.rawRows(k)
	if !e.room(map[*buffer]uint64{&e.raw: 4 * uint64(step*k)}) {
		return false
	}
	for i := 0; i < rows; i += step {
		part := matrix{f.Data[i*f.Stride:], min(step, rows-i), k, f.Stride, k}
		if !e.upload(s, e.raw.at, part) || !e.pack(s, to+4*uint64(i*k), e.raw.at, part.lines, k) {
			return false
		}
	}
	return e.fence(s)
}

// send puts the copy of a factor that is not by row into a stream.
func (e *Engine) send(stream uintptr, to uint64, f kernel.Factor, rows, k int) bool {
	if f.Read != nil {
		step := e.rawRows(k)
		for first := 0; first < rows; first += step {
			n := min(step, rows-first)
			if !f.Read(first, n, func(panels []float32) bool {
				part := kernel.Factor{Data: panels, Layout: f.Layout, Stride: f.Stride, Stored: f.Stored}
				return e.send(stream, to+bytesOf(f, first, k), part, n, k)
			}) {
				return false
			}
		}
		return true
	}
	m := matrixOf(f, rows, k)
	if narrow(f) != 0 {
		return e.uploadNarrow(stream, to, m.at, f.Stored)
	}
	return e.upload(stream, to, m)
}

// write computes a product whose rows are independent, in pieces.
func (e *Engine) write(p *kernel.Product) bool {
	part := p.Parts[0]
	fit := e.slot / 4 / max(p.Cols, part.K) // rows in a slot
	if len(p.Parts) != 1 || part.A.Layout != kernel.ByRow || fit == 0 {
		return false
	}
	step := min(p.Rows, max(1, e.piece/4/part.K))
	most := min(step, max(1, min(fit, step/(2*lanes))/pieceRows)*pieceRows)
	lanes := min(lanes, (step+most-1)/most)
	sizes := map[*buffer]uint64{&e.a: panelBytes(step, part.K), &e.raw: 4 * uint64(lanes*most*part.K), &e.c: 4 * uint64(lanes*most*p.Cols)}
	b, ok := e.keep(part.B, p.Cols, part.K)
	if !ok {
		sizes[&e.b] = bytesOf(part.B, p.Cols, part.K)
		if part.B.Layout == kernel.ByRow {
			sizes[&e.raw] = max(sizes[&e.raw], 4*uint64(e.rawRows(part.K)*part.K))
		}
	}
	if e.failed != nil || !e.room(sizes) {
		return false
	}
	if !ok {
		if b = e.b; !e.bring(b.at, part.B, p.Cols, part.K) {
			return false
		}
	}
	if wide := (e.slot / 4 / p.Rows) &^ (pieceRows - 1); most >= p.Rows && wide > 0 && wide < p.Cols && part.Reach == kernel.All {
		return e.across(p, factorOf(part.B, b.at, p.Cols, part.K), wide)
	}
	for i := 0; i < p.Rows; i += step {
		rows, version := min(step, p.Rows-i), part.A.Version
		if rows < p.Rows {
			version = 0
		}
		there := version != 0 && version == e.inA
		e.inA = 0
		for lane, j := 0, 0; j < rows; lane, j = (lane+1)%lanes, j+most {
			s, n := e.streams[lane], min(most, rows-j)
			raw, a, c := e.raw.at+4*uint64(lane*most*part.K), e.a.at+4*uint64(j*part.K), e.c.at+4*uint64(lane*most*p.Cols)
			if !there && (!e.upload(s, raw, matrix{part.A.Data[(i+j)*part.A.Stride:], n, part.K, part.A.Stride, part.K}) || !e.pack(s, a, raw, n, part.K)) {
				return false
			}
			if !e.multiply(s, c, panels(a, part.K), factorOf(part.B, b.at, p.Cols, part.K), n, p.Cols, part.K, false, part.Reach) ||
				!e.download(s, matrix{p.Dst[(i+j)*p.Stride:], n, p.Cols, p.Stride, p.Cols}, c) {
				return false
			}
		}
		if !e.finishAll() {
			return false
		}
		e.inA = version
	}
	return true
}

// across computes few rows of many columns, of which wide ones fit a slot, in pieces of columns.
func (e *Engine) across(p *kernel.Product, b factor, wide int) bool {
	part, s := p.Parts[0], e.streams[0]
	wide = min(wide, (p.Cols/(2*lanes)+pieceRows)&^(pieceRows-1))
	there := part.A.Version != 0 && part.A.Version == e.inA
	e.inA = 0
	if !there && (!e.upload(s, e.raw.at, matrixOf(part.A, p.Rows, part.K)) || !e.pack(s, e.a.at, e.raw.at, p.Rows, part.K)) || !e.fence(s) {
		return false
	}
	for lane, j := 0, 0; j < p.Cols; lane, j = (lane+1)%lanes, j+wide {
		s, n, c := e.streams[lane], min(wide, p.Cols-j), e.c.at+4*uint64(p.Rows*j)
		if !e.multiply(s, c, panels(e.a.at, part.K), b.from(j), p.Rows, n, part.K, false, kernel.All) ||
			!e.download(s, matrix{p.Dst[j:], p.Rows, n, p.Stride, n}, c) {
			return false
		}
	}
	if !e.finishAll() {
		return false
	}
	e.inA = part.A.Version
	return true
}

// add adds products of parts to a result, which is on the card meanwhile. A part travels while the one before is computed.
func (e *Engine) add(p *kernel.Product) bool {
	if p.Stride != p.Cols {
		return false
	}
	n, c := p.Rows*p.Cols, buffer{}
	var sizeA, sizeB uint64
	for _, part := range p.Parts {
		if part.K == 0 || part.A.Layout != kernel.ByPosition || part.B.Layout != kernel.ByPosition {
			return false
		}
		a, b := matrixOf(part.A, p.Rows, part.K), matrixOf(part.B, p.Cols, part.K)
		sizeA, sizeB = max(sizeA, a.bytes()), max(sizeB, b.bytes())
	}
	turns := min(2, len(p.Parts))
	sizes := map[*buffer]uint64{&e.a: uint64(turns) * sizeA, &e.b: uint64(turns) * sizeB}
	if p.Sum == kernel.AddParts {
		sizes[&e.part] = 4 * uint64(n)
	}
	c, stays := e.stay(p)
	if !stays {
		sizes[&e.c] = 4 * uint64(n)
	}
	if e.failed != nil || !e.room(sizes) {
		return false
	}
	if !stays {
		if c = e.c; !e.upload(e.streams[0], c.at, values(p.Dst[:n])) || !e.fence(e.streams[0]) {
			return false
		}
	}
	e.inA = 0
	for i, part := range p.Parts {
		s, turn := e.streams[i%turns], uint64(i%turns)
		a, b := matrixOf(part.A, p.Rows, part.K), matrixOf(part.B, p.Cols, part.K)
		atA, atB := e.a.at+turn*sizeA, e.b.at+turn*sizeB
		if !e.upload(s, atA, a) {
			return false
		}
		if p.Rows == p.Cols && &a.at[0] == &b.at[0] && part.A.Stride == part.B.Stride {
			atB = atA
		} else if !e.upload(s, atB, b) {
			return false
		}
		if !e.do("cuStreamWaitEvent", e.driver.after(s, e.done, 0)) {
			return false
		}
		dst := c.at
		if p.Sum == kernel.AddParts {
			dst = e.part.at
		}
		if !e.multiply(s, dst, factorOf(part.A, atA, p.Rows, part.K), factorOf(part.B, atB, p.Cols, part.K), p.Rows, p.Cols, part.K, p.Sum == kernel.AddLower,
			part.Reach) ||
			p.Sum == kernel.AddParts && !e.sum(s, c.at, dst, n) || !e.do("cuEventRecord", e.driver.record(e.done, s)) {
			return false
		}
	}
	if !e.fence(e.streams[(len(p.Parts)-1)%turns]) {
		return false
	}
	if stays {
		return true
	}
	// dst changes only when all of the result has come.
	whole := make([]float32, n)
	if !e.download(e.streams[0], values(whole), c.at) || !e.finishAll() {
		return false
	}
	kernel.Copy(e.threads, p.Dst[:n], whole)
	return true
}

// fence lets all streams wait for what is in one of them.
func (e *Engine) fence(stream uintptr) bool {
	if !e.do("cuEventRecord", e.driver.record(e.done, stream)) {
		return false
	}
	for _, s := range e.streams {
		if s != stream && !e.do("cuStreamWaitEvent", e.driver.after(s, e.done, 0)) {
			return false
		}
	}
	return true
}

// multiply puts a product into a stream.
func (e *Engine) multiply(stream uintptr, dst uint64, a, b factor, rows, cols, k int, lower bool, reach kernel.Reach) bool {
	return e.product(stream, dst, a, b, rows, cols, k, cols, lower, reach)
}

// product does so for a result whose rows are ld apart.
func (e *Engine) product(stream uintptr, dst uint64, a, b factor, rows, cols, k, ld int, lower bool, reach kernel.Reach) bool {
	if b.narrow != 0 {
		return e.layers(stream, a, rows, k, []layer{{b, dst, 0, cols}})
	}
	kind, tile := product128, 128
	many := (rows + 255) / 256 * ((cols + 127) / 128)
	if lower {
		many /= 2
	}
	if e.wide || many >= wideTiles {
		kind, tile = product256, 256
	}
	m, n, p, stride, mode, span := int32(rows), int32(cols), int32(k), int32(ld), int32(0), int32(reach)
	if lower {
		mode = 1
	}
	return e.launch(stream, kind, (cols+127)/128, (rows+tile-1)/tile, unsafe.Pointer(&dst), unsafe.Pointer(&a), unsafe.Pointer(&b), unsafe.Pointer(&m),
		unsafe.Pointer(&n), unsafe.Pointer(&p), unsafe.Pointer(&stride), unsafe.Pointer(&mode), unsafe.Pointer(&span))
}

// wideTiles is the number of tiles of 256 rows from which on they are used, which are faster where no part of a card is idle at the end.
const wideTiles = 768

// mostTiles is how many tiles a launch of layers may have, for each of which a stream has a counter.
const mostTiles = 1<<14 - 1

// layer is a matrix of n rows, in panels, that rows are multiplied by, as the kernels take it.
type layer struct {
	b         factor
	dst, bias uint64
	n         int
}

// layersArgument is the argument of the kernels.
type layersArgument struct {
	a  factor
	of [3]struct {
		b         factor
		dst, bias uint64
		n, tiles  int32
	}
	m, k  int32
	turns uint64
}

// layers multiplies rows in panels [m, k] by up to three matrices, all or none of 16 bits, in one launch.
func (e *Engine) layers(stream uintptr, a factor, m, k int, all []layer) bool {
	kind, rows := layers64, 64
	if (m+63)/64%2 == 0 || m > 512 {
		kind, rows = layers128, 128
	}
	if all[0].b.narrow != 0 {
		kind += halves64 - layers64
	}
	l, tiles := layersArgument{a: a, m: int32(m), k: int32(k)}, 0
	for i := range l.of {
		if i < len(all) {
			x := all[i]
			tiles += (m + rows - 1) / rows * ((x.n + 127) / 128)
			l.of[i].b, l.of[i].dst, l.of[i].bias, l.of[i].n = x.b, x.dst, x.bias, int32(x.n)
		}
		l.of[i].tiles = int32(tiles)
	}
	if tiles > mostTiles || !e.counters() {
		return false
	}
	l.turns = e.turns.at + 4*(mostTiles+1)*uint64(slices.Index(e.streams[:], stream))
	return e.launch(stream, kind, tiles, (k+kernel.Segment-1)/kernel.Segment, unsafe.Pointer(&l))
}

// counters makes those of turns.
func (e *Engine) counters() bool {
	if e.turns.at != 0 {
		return true
	}
	zeros := make([]float32, lanes*(mostTiles+1))
	b, ok := e.more(4 * uint64(len(zeros)))
	e.turns = b
	return ok && e.upload(e.streams[0], e.turns.at, values(zeros)) && e.fence(e.streams[0])
}

// pack puts rows [rows, k] into panels.
func (e *Engine) pack(stream uintptr, dst, src uint64, rows, k int) bool {
	m, p := int32(rows), int32(k)
	return e.launch(stream, pack, (k+31)/32, (rows+31)/32, unsafe.Pointer(&dst), unsafe.Pointer(&src), unsafe.Pointer(&m), unsafe.Pointer(&p))
}

// sum adds n values to others.
func (e *Engine) sum(stream uintptr, dst, src uint64, n int) bool {
	count := uint64(n)
	return e.launch(stream, sum, (n+255)/256, 1, unsafe.Pointer(&dst), unsafe.Pointer(&src), unsafe.Pointer(&count))
}

// launch starts a kernel.
func (e *Engine) launch(stream uintptr, kind, x, y int, arguments ...unsafe.Pointer) bool {
	return e.do(launches, e.start(stream, kind, x, y, arguments...))
}

// launches is the call that starts kernels.
const launches = "cuLaunchKernel"

// start is launch for work that goes on with other work: a failure is the caller's to note.
func (e *Engine) start(stream uintptr, kind, x, y int, arguments ...unsafe.Pointer) int32 {
	return e.driver.launch(e.kernels[kind], uint32(x), uint32(y), 1, 256, 1, 1, e.added[kind], stream, unsafe.Pointer(&arguments[0]), nil)
}
