package ops

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Memory holds the caches and recurrent states of a conversation. It implements backend.State.
type Memory struct {
	Positions int
	Caches    []*kernel.KVCache     // nil before the first call of an Attention op
	Linear    []*kernel.LinearState // nil before the first call of a LinearAttention op
}

// Len is the number of positions.
func (m *Memory) Len() int { return m.Positions }

// Reset forgets them.
func (m *Memory) Reset() {
	m.Positions = 0
	m.Truncate()
	for _, l := range m.Linear {
		if l != nil {
			l.Reset()
		}
	}
}

// Keep forgets all positions but the first n, and reports whether it could.
func (m *Memory) Keep(n int) bool {
	if n == m.Positions {
		return true
	}
	if n < 0 || n > m.Positions || slices.ContainsFunc(m.Linear, func(l *kernel.LinearState) bool { return l != nil }) {
		return false
	}
	m.Positions = n
	m.Truncate()
	return true
}

// Bytes is the memory of the caches, and of the recurrent states.
func (m *Memory) Bytes() (cached, fixed int64) {
	for _, c := range m.Caches {
		if c != nil {
			cached += c.Bytes()
		}
	}
	for _, l := range m.Linear {
		if l != nil {
			fixed += l.Bytes()
		}
	}
	return cached, fixed
}

// Truncate forgets the positions of a call that failed.
func (m *Memory) Truncate() {
	for _, c := range m.Caches {
		if c != nil {
			c.Truncate(min(c.Len(), m.Positions))
		}
	}
}

// Commit keeps the positions of a call.
func (m *Memory) Commit(tokens int) {
	m.Positions += tokens
	for _, l := range m.Linear {
		if l != nil {
			l.Commit()
		}
	}
}

// DeepRows finds the second output of a tower, or returns -1.
func DeepRows(g *mnn.Graph) int32 {
	if !slices.Contains(g.Outputs, mnn.DeepRows) {
		return -1
	}
	return int32(slices.Index(g.Tensors, mnn.DeepRows))
}

// Logits finds the output of a graph: the logits of a language model, the vector of an embedding model, or the rows of an encoder of other input.
func Logits(g *mnn.Graph) (int32, error) {
	for i, name := range g.Tensors {
		if name == "logits" || name == mnn.SentenceOutput || name == mnn.PictureRows || name == mnn.SoundRows {
			return int32(i), nil
		}
	}
	return 0, fmt.Errorf("graph has no tensor named logits, %s, %s or %s: %w", mnn.SentenceOutput, mnn.PictureRows, mnn.SoundRows, tensor.ErrCorrupt)
}
