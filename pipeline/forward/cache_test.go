package forward

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// grown returns the logits of windows of one length: filled tokens at once, then one at a time. Logits of the filled tokens other
// than the last are 0.
func grown(t testing.TB, m *Model, windows [][]int32, filled int) []float32 {
	t.Helper()
	n, length, vocab := len(windows), len(windows[0]), m.decoder.Vocab
	c, err := m.NewCache(n, length)
	check(t, err)
	head, err := m.Head()
	check(t, err)
	all, row := make([]float32, n*length*vocab), make([]float32, n*vocab)
	for pos := max(0, filled-1); pos < length; pos++ {
		var h []float32
		if pos == filled-1 {
			var parts [][]int32
			for _, w := range windows {
				parts = append(parts, w[:filled])
			}
			h, err = c.Fill(t.Context(), parts, 50)
		} else {
			var tokens []int32
			for _, w := range windows {
				tokens = append(tokens, w[pos])
			}
			h, err = c.Advance(t.Context(), tokens)
		}
		check(t, err)
		h = head.Input(h, h)
		check(t, head.Logits(t.Context(), row, h))
		for i := range n {
			copy(all[(i*length+pos)*vocab:], row[i*vocab:(i+1)*vocab])
		}
	}
	return all
}

// sameGrown requires windows that grow to have the logits of those that are computed at once, for several numbers of tokens that
// are filled.
func sameGrown(t *testing.T, m *Model, windows [][]int32) {
	t.Helper()
	length, vocab := len(windows[0]), m.decoder.Vocab
	want := slices.Concat(scoreAll(t, m, windows)...)
	for _, filled := range []int{0, 1, 3, length / 2, length} {
		got := grown(t, m, windows, filled)
		for i := range windows {
			first, end := (i*length+max(0, filled-1))*vocab, (i+1)*length*vocab
			if !slices.Equal(got[first:end], want[first:end]) {
				t.Errorf("window %d differs after %d filled tokens", i, filled)
			}
		}
	}
}

// Windows of every family grow to the same bits: attention of all kinds, latent attention, experts, delta nets, convolutions,
// Mamba 2, and parallel branches.
func TestCacheFamilies(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(familiesDir, "*", "model.safetensors"))
	if err != nil || len(dirs) < 50 {
		t.Fatalf("%d families: %v", len(dirs), err)
	}
	for i, file := range dirs {
		if testing.Short() && i%16 != 0 {
			continue
		}
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			t.Parallel()
			d, src := openSource(t, filepath.Dir(file))
			sameGrown(t, newModel(t, d, src, 2), randomTokens(d.Vocab, 3, 40))
		})
	}
}

// Every block and option, on several threads, with windows of several groups, and in a cache that held other windows.
func TestCacheEvery(t *testing.T) {
	d, src := everything()
	for _, threads := range []int{1, 5} {
		m := newModel(t, d, src, threads)
		m.Keep(m.Weights().All)
		sameGrown(t, m, randomTokens(d.Vocab, 2, 67))
	}
	m := newModel(t, d, src, 3)
	windows := randomTokens(d.Vocab, 5, 500) // 2500 tokens, more than a group
	c, err := m.NewCache(5, len(windows[0]))
	check(t, err)
	_, err = c.Fill(t.Context(), windows, 0)
	check(t, err)
	got, err := c.Fill(t.Context(), windows[2:], 0)
	check(t, err)
	alone, err := m.NewCache(1, len(windows[0]))
	check(t, err)
	for i, w := range windows[2:] {
		want, err := alone.Fill(t.Context(), [][]int32{w}, 0)
		check(t, err)
		if !slices.Equal(got[i*d.Hidden:(i+1)*d.Hidden], want) {
			t.Errorf("window %d differs", i)
		}
	}
}

// Sums over values begin at the same position as in the forward pass where an attention window is longer than a segment of a sum.
func TestCacheLongWindow(t *testing.T) {
	d, src := randomModel(features{heads: 2, kvHeads: 1})
	for i := range d.Layers {
		attentionOf(d, i).Window = 300
	}
	windows := randomTokens(d.Vocab, 1, 460)
	m := newModel(t, d, src, 2)
	want := slices.Concat(scoreAll(t, m, windows)...)
	if !slices.Equal(grown(t, m, windows, 0), want) {
		t.Error("the window differs")
	}
}

func TestCacheRefused(t *testing.T) {
	d, src := randomModel(features{heads: 2, kvHeads: 1})
	d.MaxPositions = 20
	m := newModel(t, d, src, 1)
	if _, err := m.NewCache(1, 20); err != nil {
		t.Error(err)
	}
	if _, err := m.NewCache(1, 21); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("windows longer than the context: %v", err)
	}
}

// The size of the states is what a cache allocates.
func TestCacheBytes(t *testing.T) {
	d, src := everything()
	const length = 45
	c, err := newModel(t, d, src, 1).NewCache(2, length)
	check(t, err)
	var held int64
	for _, pasts := range c.pasts {
		for _, p := range pasts {
			held += 4 * int64(len(p.inputs)+len(p.sums))
			for i := range p.keys {
				held += int64(p.keys[i].Bytes() + p.values[i].Bytes())
			}
		}
	}
	if want := 2 * CacheBytes(d, length); held != want {
		t.Errorf("%d bytes, want %d", held, want)
	}
}
