package calibrate

import (
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// ahead loads layers one after the other. While a device computes a layer, the next one is read, if both have room.
type ahead[T any] struct {
	load   func(i int) (T, error)
	order  []int
	fits   func(layer T) bool // whether there is room for another one as large
	coming chan struct{}      // closed when layer and err are there, or nil
	layer  T
	err    error
}

// layersAhead loads layers of a model in some order, as many weights of each as have room.
func (o *Options) layersAhead(m *forward.Model, order []int) *ahead[*forward.Layer] {
	limit := o.Memory / weightShare
	return &ahead[*forward.Layer]{
		load:  func(i int) (*forward.Layer, error) { return m.LayerWithin(i, limit) },
		order: order,
		fits: func(l *forward.Layer) bool {
			all, _ := l.Bytes()
			return 2*all <= limit
		},
	}
}

// next returns the next layer. The one before it must not be used any more.
func (a *ahead[T]) next() (T, error) {
	if a.coming == nil {
		a.start()
	}
	a.wait()
	l, err := a.layer, a.err
	a.layer = *new(T)
	if err == nil && len(a.order) > 0 && kernel.HasDevice() && a.fits(l) {
		a.start()
	}
	return l, err
}

// start begins to load the first layer that is left.
func (a *ahead[T]) start() {
	coming, i := make(chan struct{}), a.order[0]
	a.coming, a.order = coming, a.order[1:]
	go func() {
		defer close(coming)
		a.layer, a.err = a.load(i)
	}()
}

// wait returns when nothing is loaded any more.
func (a *ahead[T]) wait() {
	if a.coming != nil {
		<-a.coming
		a.coming = nil
	}
}
