package device

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/verify"
)

// scratch holds the package that several tests share.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "device"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

var tinyPackage = sync.OnceValues(func() (string, error) {
	return stagetest.Export(context.Background(), scratch, "../../testdata/tiny-qwen3", "quantize: {bits: 4}\nverify: {enabled: false}")
})

// testHost opens the trained checkpoint of the repository in 4 bits.
func testHost(t *testing.T) *host {
	t.Helper()
	dir, err := tinyPackage()
	if err != nil {
		t.Fatal(err)
	}
	p, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	h, err := newHost(p, Options{CacheBytes: 1 << 28, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// follow takes the best token n times, except for the second best at one step, and returns the tokens and the distance, in
// logits, of that one.
func follow(t *testing.T, h *host, prompt []int32, n, odd int) (tokens []int32, distance float64) {
	t.Helper()
	h.exact.Reset()
	logits, err := h.exact.Prefill(t.Context(), prompt)
	for i := range n {
		if err != nil {
			t.Fatal(err)
		}
		order := make([]int32, len(logits))
		for j := range order {
			order[j] = int32(j)
		}
		slices.SortFunc(order, func(a, b int32) int {
			if logits[a] > logits[b] {
				return -1
			}
			return 1
		})
		next := order[0]
		if i == odd {
			next = order[1]
			distance = float64(logits[order[0]]) - float64(logits[next])
		}
		tokens = append(tokens, next)
		logits, err = h.exact.Decode(t.Context(), next)
	}
	return tokens, distance
}

func TestRead(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	prompt := h.pkg.Tokenizer.Encode("Fellow-Citizens of the Senate and of the House")
	const n, odd = 12, 5
	best, _ := follow(t, h, prompt, n, -1)
	other, distance := follow(t, h, prompt, n, odd)
	if distance == 0 {
		t.Fatal("the best tokens are equally good")
	}
	r := &reader{pkg: h.pkg, sess: h.exact, tolerance: floatGap}
	got, err := r.read(t.Context(), prompt, h.pkg.Tokenizer.Decode(best), n, n)
	if err != nil || !slices.Equal(got.tokens, best) || got.gap != 0 || got.stopped {
		t.Errorf("best tokens: %+v, %v", got, err)
	}
	text := h.pkg.Tokenizer.Decode(other)
	r.tolerance = distance * 1.01
	got, err = r.read(t.Context(), prompt, text, n, -1)
	if err != nil || !slices.Equal(got.tokens, other) || math.Abs(got.gap-distance) > 1e-6 || got.at != odd {
		t.Errorf("one second best token: %+v, %v, want a gap of %g", got, err, distance)
	}
	r.tolerance = distance * 0.9
	var unlike *readError
	got, err = r.read(t.Context(), prompt, text, n, n)
	if !errors.As(err, &unlike) || unlike.step != odd || math.Abs(unlike.gap-distance) > 1e-6 {
		t.Errorf("one second best token, which is too far: %+v, %v", got, err)
	}
}

// TestReadSteps tries texts that fit only after steps back, and some that do not fit.
func TestReadSteps(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	h := testHost(t)
	prompt := h.pkg.Tokenizer.Encode("We, the people")
	const n = 6
	best, _ := follow(t, h, prompt, n, -1)
	text := h.pkg.Tokenizer.Decode(best)
	// With this tolerance every token is a candidate, and the likeliest ones are wrong in most places.
	r := &reader{pkg: h.pkg, sess: h.exact, tolerance: math.MaxFloat64}
	if got, err := r.read(t.Context(), prompt, "\n", n, 1); err != nil || !got.stopped || len(got.tokens) != 0 {
		t.Errorf("a stop token at once: %+v, %v", got, err)
	}
	if got, err := r.read(t.Context(), prompt, text[:len(text)-1]+"\xff", n, n); err == nil {
		t.Errorf("a byte that is not of the vocabulary's text: %+v", got)
	}
	r.tolerance = floatGap
	for name, tc := range map[string]struct {
		text  string
		n     int
		count int
		want  string
	}{
		"nothing":         {"", n, -1, "the text ends after 0 tokens"},
		"half":            {h.pkg.Tokenizer.Decode(best[:3]), n, -1, "the text ends after 3 tokens"},
		"too many":        {text + text, n, -1, "number of tokens"},
		"other count":     {text, n, n - 1, "number of tokens"},
		"garbage":         {strings.Repeat("!", n), n, n, "token 0: the engine continues with"},
		"table as text":   {text + "\nprompt tokens num = 3\n", n, -1, "number of tokens"},
		"garbage at last": {h.pkg.Tokenizer.Decode(best[:5]) + " zebra", n, -1, "token 5: the engine continues with"},
	} {
		if got, err := r.read(t.Context(), prompt, tc.text, tc.n, tc.count); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestPerplexity(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	text, tokens := h.perplexityText(verify.BuiltIn)
	lines := strings.HasPrefix(verify.BuiltIn, text) && strings.HasSuffix(text, "\n")
	if len(tokens) > perplexityTokens || len(tokens) < perplexityTokens*3/4 || !lines {
		t.Fatalf("%d tokens of a text of %d bytes", len(tokens), len(text))
	}
	tokens = tokens[:3*tileRows+5]
	got, err := perplexity(t.Context(), h.exact, tokens)
	if err != nil {
		t.Fatal(err)
	}
	h.exact.Reset()
	logits, err := h.exact.Forward(t.Context(), tokens)
	if err != nil {
		t.Fatal(err)
	}
	vocab, sum := len(logits)/len(tokens), 0.0
	for i, next := range tokens[1:] {
		sum += surprise(logits[i*vocab:(i+1)*vocab], next)
	}
	if want := math.Exp(sum / float64(len(tokens)-1)); math.Abs(got/want-1) > 1e-6 || got < 5 || got > 500 {
		t.Errorf("perplexity %g, want %g", got, want)
	}
	if got := surprise([]float32{0, 0, 0, 0}, 2); math.Abs(got-math.Log(4)) > 1e-12 {
		t.Errorf("one of four: %g nats", got)
	}
}

func TestNoise(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	// Only likely tokens count, and a shift of all logits is none.
	if got := rowNoise([]float32{5, 4, 3, -9}, []float32{6, 5.25, 3.75, 9}); math.Abs(got-0.25) > 1e-6 {
		t.Errorf("noise %g", got)
	}
	h := testHost(t)
	p := prompt{tokens: h.pkg.Tokenizer.Encode("We, the people")}
	p.output, _ = follow(t, h, p.tokens, 4, -1)
	got, err := h.noise(t.Context(), []prompt{p})
	if err != nil || !(got > 0 && got < 2) {
		t.Errorf("noise of int8 activations: %g, %v", got, err)
	}
}

func TestPromptTexts(t *testing.T) {
	t.Parallel()
	text := "# a title that llm_demo would skip as it begins with a sign\n\none two three four five six seven eight\nshort line\n" +
		"a b c d e f g h i j k l m n o p\n"
	got := promptTexts(text, 3)
	if want := []string{"one two three four five six seven eight", "a b c d e f g h i j k l m n"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := promptTexts("", 3); got != nil {
		t.Errorf("of nothing: %q", got)
	}
	for text, want := range map[string]bool{"a": true, "": false, "#a": false, "a\nb": false, "a\r": false, " #": true} {
		if onePrompt(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

func TestCheckDir(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]bool{
		DefaultDir: true, "/sdcard/x": true, "/": false, "/data": false, "data/x": false, "/data/../x": false, "/data/x/": false,
		"/data/\nx": false, "": false,
	} {
		if got := CheckDir(dir) == nil; got != want {
			t.Errorf("%q: %v", dir, got)
		}
	}
}
