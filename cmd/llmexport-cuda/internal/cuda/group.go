package cuda

import (
	"slices"
	"sync"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// Group is several cards as one [kernel.Device]. Rows, and runs of rows, that do not depend on each other are shared out among them, other work is given
// to one card after the other, so that no sum depends on how many cards there are. What is added to a result goes where the result is.
type Group struct {
	cards []*Engine

	mu   sync.Mutex
	next int                  // the card for the next work that is not shared out
	home map[*float32]*Engine // of results that stay, by their first element
}

// NewGroup makes cards one device.
func NewGroup(cards []*Engine) *Group {
	for _, card := range cards[1:] {
		card.pins = cards[0].pins
	}
	return &Group{cards: cards, home: map[*float32]*Engine{}}
}

// Compute implements [kernel.Device].
func (g *Group) Compute(w kernel.Work) bool {
	switch w := w.(type) {
	case *kernel.Product:
		if w.Sum != kernel.Write {
			return g.homeOf(w).Compute(w)
		}
		if w.Parts[0].A.Layout == kernel.ByRow {
			return g.split(w, w.Rows, pieceRows, func(lo, hi int) kernel.Work {
				p, part := *w, w.Parts[0]
				part.A.Data = part.A.Data[lo*part.A.Stride:]
				part.A.Version = rowsVersion(part.A.Version, lo) // these rows alone
				p.Dst, p.Rows, p.Parts = w.Dst[lo*w.Stride:], hi-lo, []kernel.Part{part}
				return &p
			}, nil)
		}
	case *kernel.Feedback:
		changes := []change{changeOf(w.Codes), changeOf(w.Scale), changeOf(w.Zero)}
		return g.split(w, w.Rows, feedbackRows, func(lo, hi int) kernel.Work { return feedbackOf(w, lo, hi) }, changes)
	case *kernel.Feedbacks:
		var changes []change
		for _, f := range w.Of {
			changes = append(changes, changeOf(f.Codes), changeOf(f.Scale), changeOf(f.Zero))
		}
		return g.split(w, len(w.Of), 1, func(lo, hi int) kernel.Work { return &kernel.Feedbacks{Of: w.Of[lo:hi], Left: w.Left[lo:hi]} }, changes)
	case *kernel.Descent:
		changes := []change{changeOf(w.Codes), changeOf(w.Scale), changeOf(w.Zero)}
		return g.split(w, w.Rows, descentRows, func(lo, hi int) kernel.Work { return descentOf(w, lo, hi) }, changes)
	case *kernel.Choice:
		var changes []change
		for i := range w.Runs {
			run := &w.Runs[i]
			changes = append(changes, changeOf(run.Codes), changeOf(run.Scale), changeOf(run.Zero), func() func() {
				before := run.Left
				return func() { run.Left = before }
			})
		}
		return g.split(w, len(w.Runs), 1, func(lo, hi int) kernel.Work {
			c := *w
			c.Runs = w.Runs[lo:hi]
			return &c
		}, changes)
	case *kernel.Refinement:
		if g.cards[0].cheapest(w) == without {
			return false
		}
		var changes []change
		for _, run := range w.Runs {
			changes = append(changes, changeOf(run.Codes), changeOf(run.Scale), changeOf(run.Zero))
		}
		return g.split(w, len(w.Runs), 1, func(lo, hi int) kernel.Work {
			r := *w
			r.Runs, r.Threads = w.Runs[lo:hi], w.Threads*(hi-lo)/len(w.Runs)
			return &r
		}, changes)
	case *kernel.Chain:
		if w.Windows == nil { // what it leaves is on one card
			return g.cards[0].Compute(w)
		}
		if len(w.Moments) > 0 {
			card := g.homeOfAll(w.Moments)
			return card != nil && card.Compute(w)
		}
		if slices.ContainsFunc(w.Steps, func(s kernel.Step) bool { _, ok := s.(*kernel.ExpertsBackStep); return ok }) {
			return g.cards[0].Compute(w) // choices of all windows are sorted, and a card has the weights
		}
		if slices.ContainsFunc(w.Steps, func(s kernel.Step) bool { x, ok := s.(*kernel.NormBackStep); return ok && x.Sums != nil }) {
			break // sums of windows that follow one another
		}
		return g.split(w, len(w.Windows), 1, func(lo, hi int) kernel.Work { return windowsOf(w, lo, hi) }, nil)
	case *kernel.Divergences:
		return g.split(w, w.Want.Rows, pieceRows, func(lo, hi int) kernel.Work {
			return &kernel.Divergences{Want: logitsOf(w.Want, lo, hi), Got: logitsOf(w.Got, lo, hi), KL: w.KL[lo:hi]}
		}, nil)
	case *kernel.Labels:
		return g.split(w, w.Rows, pieceRows, func(lo, hi int) kernel.Work {
			return &kernel.Labels{Logits: logitsOf(w.Logits, lo, hi), Back: w.Back, At: w.At[lo:hi], Squares: w.Squares[lo:hi],
				Gradient: rowsOf(w.Gradient, w.Rows, lo, hi)}
		}, nil)
	case *kernel.Draws:
		return g.split(w, w.Rows, pieceRows, func(lo, hi int) kernel.Work {
			return &kernel.Draws{Logits: logitsOf(w.Logits, lo, hi), At: w.At[lo:hi], Tokens: w.Tokens[lo:hi]}
		}, nil)
	}
	return g.turn().Compute(w)
}

// Apart implements [kernel.Shared].
func (g *Group) Apart(n int) {
	if n > 1 {
		n = max(2, (n+len(g.cards)-1)/len(g.cards))
	}
	for _, card := range g.cards {
		card.Apart(n)
	}
}

// Forget implements [kernel.Device].
func (g *Group) Forget(p *kernel.Pasts) { g.cards[0].Forget(p) }

// Room implements [kernel.Device]: chains of tokens are on one card.
func (g *Group) Room() int64 { return g.cards[0].Room() }

// feedbackOf is the part of a feedback for rows lo to hi-1.
func feedbackOf(w *kernel.Feedback, lo, hi int) *kernel.Feedback {
	f := *w
	f.Rows = hi - lo
	f.Work, f.Codes, f.Scale, f.Zero = rowsOf(w.Work, w.Rows, lo, hi), rowsOf(w.Codes, w.Rows, lo, hi), rowsOf(w.Scale, w.Rows, lo, hi),
		rowsOf(w.Zero, w.Rows, lo, hi)
	return &f
}

// descentOf is the part of a descent for rows lo to hi-1.
func descentOf(w *kernel.Descent, lo, hi int) *kernel.Descent {
	d := *w
	d.Rows = hi - lo
	d.Codes, d.Scale, d.Zero, d.Target = rowsOf(w.Codes, w.Rows, lo, hi), rowsOf(w.Scale, w.Rows, lo, hi), rowsOf(w.Zero, w.Rows, lo, hi),
		rowsOf(w.Target, w.Rows, lo, hi)
	return &d
}

// windowsOf is the part of a chain for whole windows lo to hi-1.
func windowsOf(w *kernel.Chain, lo, hi int) *kernel.Chain {
	c, first := *w, 0
	for _, n := range w.Windows[:lo] {
		first += n
	}
	c.Windows, c.Rows = w.Windows[lo:hi], 0
	for _, n := range c.Windows {
		c.Rows += n
	}
	c.States, c.Out = rowsOf(w.States, w.Rows, first, first+c.Rows), rowsOf(w.Out, w.Rows, first, first+c.Rows)
	for _, list := range []*[]kernel.Carried{&c.Given, &c.Taken} {
		*list = slices.Clone(*list)
		for i := range *list {
			x := &(*list)[i]
			x.Data = rowsOf(x.Data, w.Rows, first, first+c.Rows)
		}
	}
	return &c
}

// logitsOf are rows lo to hi-1 of logits.
func logitsOf(l kernel.Logits, lo, hi int) kernel.Logits {
	l.X, l.Rows = rowsOf(l.X, l.Rows, lo, hi), hi-lo
	l.Version = rowsVersion(l.Version, lo)
	return l
}

// rowsVersion names the rows from lo on, a multiple of pieceRows, of what has a version.
func rowsVersion(version uint64, lo int) uint64 {
	if version == 0 {
		return 0
	}
	return version | uint64(lo/pieceRows+1)<<40
}

// change saves memory that work changes, and returns what restores it.
type change func() (restore func())

func changeOf[T any](x []T) change {
	return func() func() {
		before := slices.Clone(x)
		return func() { copy(x, before) }
	}
}

// rowsOf are rows lo to hi-1 of the rows of a matrix, which may be missing.
func rowsOf(x []float32, rows, lo, hi int) []float32 {
	if x == nil {
		return nil
	}
	return x[lo*(len(x)/rows) : hi*(len(x)/rows)]
}

// split lets each card do a part of the rows, or runs, a multiple of unit, unless the parts are not worth it. If a card does not do its part,
// what changes is as before.
func (g *Group) split(w kernel.Work, rows, unit int, part func(lo, hi int) kernel.Work, changes []change) bool {
	step := (rows + len(g.cards) - 1) / len(g.cards)
	step = (step + unit - 1) / unit * unit
	if step >= rows || w.Multiplications()/len(g.cards) < g.cards[0].least {
		return g.turn().Compute(w)
	}
	restore := make([]func(), len(changes))
	for i, save := range changes {
		restore[i] = save()
	}
	failed := make([]bool, len(g.cards))
	var wait sync.WaitGroup
	for i, card := range g.cards {
		lo, hi := i*step, min((i+1)*step, rows)
		if lo < hi {
			wait.Go(func() { failed[i] = !card.share(part(lo, hi)) })
		}
	}
	wait.Wait()
	if !slices.Contains(failed, true) {
		return true
	}
	for _, f := range restore {
		f()
	}
	return false
}

// turn is the next card.
func (g *Group) turn() *Engine {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next = (g.next + 1) % len(g.cards)
	return g.cards[g.next]
}

// homeOf is the card that has the result that a product is added to, or the next one.
func (g *Group) homeOf(p *kernel.Product) *Engine {
	at := &p.Dst[0]
	g.mu.Lock()
	card := g.home[at]
	g.mu.Unlock()
	if card != nil {
		return card
	}
	card = g.turn()
	if p.Stay {
		g.mu.Lock()
		g.home[at] = card
		g.mu.Unlock()
	}
	return card
}

// homeOfAll is the card that has, or gets, all of some sums that stay, or nil if several have them.
func (g *Group) homeOfAll(list []kernel.Moment) (card *Engine) {
	for _, x := range list {
		if card == nil {
			card = g.homeOf(&kernel.Product{Dst: x.Dst, Stay: true})
			continue
		}
		g.mu.Lock()
		if g.home[&x.Dst[0]] == nil {
			g.home[&x.Dst[0]] = card
		}
		same := g.home[&x.Dst[0]] == card
		g.mu.Unlock()
		if !same {
			return nil
		}
	}
	return card
}

// Settle implements [kernel.Device].
func (g *Group) Settle(dst []float32) error {
	if len(dst) == 0 {
		return nil
	}
	g.mu.Lock()
	card := g.home[&dst[0]]
	delete(g.home, &dst[0])
	g.mu.Unlock()
	if card == nil {
		return nil
	}
	return card.Settle(dst)
}
