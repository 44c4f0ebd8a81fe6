package calibrate

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// Layers come in order; with a device the next one is loaded meanwhile, if there is room, and an error comes when it is its turn.
func TestLayersAhead(t *testing.T) {
	d, src := openCheckpoint(t, tinyDir)
	m, err := forward.New(d, src, 1)
	check(t, err)
	device := someProducts(0)
	defer kernel.SetDevice(nil)
	broken := errors.New("broken")
	for _, c := range []struct {
		device, fits, ahead bool
	}{{false, true, false}, {true, false, false}, {true, true, true}} {
		kernel.SetDevice(nil)
		if c.device {
			kernel.SetDevice(&device)
		}
		started := make(chan int, 8)
		a := &ahead[*forward.Layer]{order: []int{0, 1, 1, 2, 0}, fits: func(*forward.Layer) bool { return c.fits }, load: func(i int) (*forward.Layer, error) {
			started <- i
			if i == 2 {
				return nil, broken
			}
			return m.OpenLayer(i)
		}}
		for _, want := range []int{0, 1, 1} {
			l, err := a.next()
			check(t, err)
			if l.Index != want {
				t.Fatalf("layer %d came, want %d", l.Index, want)
			}
		}
		var list []int
		for range 3 {
			list = append(list, <-started)
		}
		select {
		case i := <-started:
			list = append(list, i)
		case <-time.After(map[bool]time.Duration{true: time.Minute, false: time.Millisecond}[c.ahead]):
		}
		want := []int{0, 1, 1, 2}
		if !c.ahead {
			want = want[:3]
		}
		if !slices.Equal(list, want) {
			t.Errorf("%+v: began to load %v, want %v", c, list, want)
		}
		if _, err := a.next(); !errors.Is(err, broken) {
			t.Errorf("%+v: error %v", c, err)
		}
		a.wait()
	}
}
