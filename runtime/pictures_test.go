package runtime_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/picture"
)

// drawing is a picture of shades that depend on number.
func drawing(s picture.Size, number int) *picture.Image {
	im := &picture.Image{Width: s.Width, Height: s.Height, Pix: make([]byte, 3*s.Width*s.Height)}
	for i := range im.Pix {
		im.Pix[i] = byte(i * (3 + number) / (1 + number))
	}
	return im
}

// pictured is a text of so many tokens, a picture and a text.
func pictured(t *testing.T, p *runtime.Package, before int, seen *runtime.Prompt, after int) *runtime.Prompt {
	t.Helper()
	out := &runtime.Prompt{Tokens: tokens(before)}
	for _, q := range []*runtime.Prompt{seen, {Tokens: tokens(after)}} {
		if err := p.Append(out, q); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Pictures of a conversation are numbered where the engine numbers them, which it does in the order in which it reads them.
func TestPictureNumbers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("exports a package with a tower of slices")
	}
	const dir = "../pipeline/arch/testdata/minicpmv"
	pkg, err := stagetest.Export(t.Context(), t.TempDir(), dir, "quantize: {bits: 16}\nverify: {enabled: false}")
	if err != nil {
		t.Fatal(err)
	}
	p := openPackage(t, pkg)
	golden, err := stagetest.ReadPictures(dir + "/pictures.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	tower, err := runtime.NewTower(p, cpu.Backend{}, runtime.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	h, w := golden.Size(2) // the smallest, whose rows do not matter
	one, err := tower.Look(t.Context(), &picture.Image{Height: h, Width: w, Pix: golden.Images[2]}, picture.Size{Height: h, Width: w})
	if err != nil {
		t.Fatal(err)
	}
	again, out := slices.Clone(one.Tokens), &runtime.Prompt{}
	for range 3 {
		if err := p.Append(out, one); err != nil {
			t.Fatal(err)
		}
	}
	var want []int32
	for i, id := range golden.IDs {
		if id == p.Config.NumberStart {
			want = append(want, golden.IDs[i:i+3]...)
		}
	}
	var got []int32
	for i, id := range out.Tokens {
		if id == p.Config.NumberStart {
			got = append(got, out.Tokens[i:i+3]...)
		}
	}
	if !slices.Equal(got, want) || len(out.Tokens) != 3*len(again) || !slices.Equal(one.Tokens, again) {
		t.Errorf("numbers %v, want %v; %d tokens, want 3 times %d", got, want, len(out.Tokens), len(again))
	}
	if _, err := tower.Look(t.Context(), drawing(picture.Size{Height: 60, Width: 90}, 1), picture.Size{Height: 600, Width: 900}); err == nil {
		t.Error("a size that engines spoil is read")
	}
	if s, err := tower.Fit(picture.Size{Height: 600, Width: 900}, 1<<20); err != nil || s.CheckSlices(28) != nil || s.Height < 590 || s.Width < 890 {
		t.Errorf("%v: %v", s, err)
	}
}

// rounding is what the places where prompts are divided may change.
const rounding = 2e-4

// apart is the largest difference of two lists.
func apart(a, b []float32) (d float32) {
	for i := range a {
		d = max(d, a[i]-b[i], b[i]-a[i])
	}
	return d
}

// TestPicturePrefix: keys and values of a prompt with a picture are used again for a prompt with the same picture, and for no
// other one. A prompt in turns with others gives what the whole gives, up to rounding.
func TestPicturePrefix(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		size picture.Size
	}{
		{"llava", picture.Size{Height: 56, Width: 56}},
		{"internvl", picture.Size{Height: 48, Width: 48}},
		{"qwen2_vl", picture.Size{Height: 252, Width: 196}},
		{"smolvlm", picture.Size{Height: 64, Width: 96}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir, err := stagetest.Export(t.Context(), t.TempDir(), "../pipeline/arch/testdata/"+c.name, "quantize: {block: auto}\nverify: {enabled: false}")
			if err != nil {
				t.Fatal(err)
			}
			p := openPackage(t, dir)
			tower, err := runtime.NewTower(p, cpu.Backend{}, runtime.Options{Mode: backend.Int8, Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			var seen [2]*runtime.Prompt
			for i := range seen {
				if seen[i], err = tower.Look(t.Context(), drawing(c.size, i), c.size); err != nil {
					t.Fatal(err)
				}
			}
			s := session(t, p, backend.Int8)
			whole := func(q *runtime.Prompt) []float32 {
				f := s.Fork()
				f.Start(q)
				l, err := f.Prefill(t.Context(), q.Tokens)
				if err != nil {
					t.Fatal(err)
				}
				return slices.Clone(l)
			}
			first, other := pictured(t, p, 21, seen[0], 20), pictured(t, p, 21, seen[1], 20)
			longer := pictured(t, p, 21, seen[0], 45)
			if d := apart(whole(first), whole(other)); d < 20*rounding {
				t.Fatalf("the picture changes logits by %g only", d)
			}
			end := len(first.Tokens)
			for _, step := range []struct {
				name   string
				prompt *runtime.Prompt
				kept   func(n int) bool
			}{
				{"nothing yet", first, func(n int) bool { return n == 0 }},
				{"continued", longer, func(n int) bool { return n == end }},
				{"another picture", other, func(n int) bool { return n == 16 }}, // of 21, a whole group
				{"the first one again", first, func(n int) bool { return n == 16 }},
				{"no picture", &runtime.Prompt{Tokens: first.Tokens}, func(n int) bool { return n == 16 }},
				{"after none", first, func(n int) bool { return n == 16 }},
				{"a shorter end", pictured(t, p, 21, seen[0], 14), func(n int) bool { return n > end-20 && n%8 == 0 }},
				{"two", func() *runtime.Prompt {
					q := pictured(t, p, 21, seen[0], 14)
					if err := p.Append(q, pictured(t, p, 5, seen[1], 9)); err != nil {
						t.Fatal(err)
					}
					return q
				}(), func(n int) bool { return n == end-6 }},
				{"the first of two", pictured(t, p, 21, seen[0], 30), func(n int) bool { return n > end-20 }},
			} {
				want := whole(step.prompt)
				n := s.Resume(step.prompt)
				if !step.kept(n) || n != s.Len() {
					t.Errorf("%s: %d tokens are kept, %d are there", step.name, n, s.Len())
				}
				got, err := s.Prefill(t.Context(), step.prompt.Tokens[n:])
				if err != nil || apart(got, want) > rounding {
					t.Errorf("%s: %v; logits differ by %g from those of the whole prompt", step.name, err, apart(got, want))
				}
			}
			want, shared := whole(longer), s.Fork()
			shared.Turns = runtime.NewTurns()
			var all sync.WaitGroup
			for range 3 {
				f := shared.Fork()
				all.Go(func() {
					f.Start(longer)
					got, err := f.Prefill(t.Context(), longer.Tokens)
					if err != nil || apart(got, want) > rounding {
						t.Errorf("in turns: %v; logits differ by %g", err, apart(got, want))
					}
				})
			}
			all.Wait()
		})
	}
}

// TestFit: a tower of native size takes pictures of the areas that its library keeps, within what the caller allows.
func TestFit(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-long runs it")
	}
	t.Parallel()
	open := func(family string) *runtime.Tower {
		dir, err := stagetest.Export(t.Context(), t.TempDir(), "../pipeline/arch/testdata/"+family, "quantize: {bits: 16}\nverify: {enabled: false}")
		if err != nil {
			t.Fatal(err)
		}
		tower, err := runtime.NewTower(openPackage(t, dir), cpu.Backend{}, runtime.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		return tower
	}
	smooth, padded := open("lfm2_vl-tied"), open("gemma4-causal")
	for _, c := range []struct {
		tower *runtime.Tower
		size  picture.Size
		most  int
		want  picture.Size
	}{ // 64 to 100 rows of 32 x 32 pixels, and about 70 rows of 48 x 48
		{padded, picture.Size{Height: 480, Width: 640}, 1 << 20, picture.Size{Height: 336, Width: 432}},
		{padded, picture.Size{Height: 480, Width: 640}, 24*48*48 + 1, picture.Size{Height: 192, Width: 240}},
		{padded, picture.Size{Height: 480, Width: 640}, 1, picture.Size{Height: 48, Width: 48}},
		{smooth, picture.Size{Height: 1000, Width: 2000}, 1 << 20, picture.Size{Height: 224, Width: 448}},
		{smooth, picture.Size{Height: 300, Width: 290}, 1 << 20, picture.Size{Height: 288, Width: 288}},
		{smooth, picture.Size{Height: 60, Width: 30}, 1 << 20, picture.Size{Height: 384, Width: 192}},
		{smooth, picture.Size{Height: 60, Width: 60}, 128 * 128, picture.Size{Height: 128, Width: 128}},
	} {
		got, err := c.tower.Fit(c.size, c.most)
		if err != nil || got != c.want {
			t.Errorf("%v of at most %d pixels becomes %v, %v; want %v", c.size, c.most, got, err, c.want)
		}
	}
}
