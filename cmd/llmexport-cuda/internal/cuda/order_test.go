package cuda

import (
	"testing"
	"time"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// TestOrder lets work that gives way begin while other work leaves the card to it, and after its end.
func TestOrder(t *testing.T) {
	for _, apart := range []bool{true, false} {
		var o order
		o.begin(&kernel.Product{GivesWay: true})() // nothing else is there
		end := o.begin(&kernel.Chain{})
		began := make(chan struct{})
		go func() {
			o.begin(&kernel.Chain{GivesWay: true})()
			close(began)
		}()
		select {
		case <-began:
			t.Errorf("apart %v: work that gives way began while other work went on", apart)
		case <-time.After(10 * time.Millisecond):
		}
		if apart {
			o.leave(func() { <-began })
		}
		end()
		<-began
	}
}
