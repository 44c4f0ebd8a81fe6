package verify_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/backends/generic"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/verify"
)

const (
	seeing  = families + "internvl"
	grid    = families + "qwen2_vl"
	square  = families + "qwen2_5_vl"
	learned = families + "qwen3_5"
	smooth  = families + "lfm2_vl"
	deep    = families + "qwen3_vl"
	tiled   = families + "smolvlm-tied"
	marked  = families + "gemma3"
	staged  = families + "llava_qwen2"
	sliced  = families + "minicpmv"
)

// goodSeeing and the others make, once, packages with a tower: of pictures of one size, of any size, of any size with squares, with
// learned positions, with those stretched by a filter or with a second output, of tiles, with marks, of convolutions, and of slices.
var (
	goodSeeing  = sync.OnceValues(func() (string, error) { return exportSeeing(seeing, "quantize: {block: auto}") })
	goodMarked  = sync.OnceValues(func() (string, error) { return exportSeeing(marked, "quantize: {bits: 16}") })
	goodStaged  = sync.OnceValues(func() (string, error) { return exportSeeing(staged, "quantize: {bits: 16}") })
	goodSliced  = sync.OnceValues(func() (string, error) { return exportSeeing(sliced, "quantize: {bits: 16}") })
	goodTiled   = sync.OnceValues(func() (string, error) { return exportSeeing(tiled, "quantize: {bits: 16}") })
	goodGrid    = sync.OnceValues(func() (string, error) { return exportSeeing(grid, "quantize: {bits: 16}") })
	goodDeep    = sync.OnceValues(func() (string, error) { return exportSeeing(deep, "quantize: {bits: 16}") })
	goodLearned = sync.OnceValues(func() (string, error) { return exportSeeing(learned, "quantize: {bits: 16}") })
	goodSmooth  = sync.OnceValues(func() (string, error) { return exportSeeing(smooth, "quantize: {bits: 16}") })
	goodSquare  = sync.OnceValues(func() (string, error) { return exportSeeing(square, "quantize: {bits: 16}") })
)

func exportSeeing(checkpoint, quantize string) (string, error) {
	dir := filepath.Join(scratch, "seeing-"+filepath.Base(checkpoint))
	if err := os.Mkdir(dir, 0o777); err != nil {
		return "", err
	}
	return stagetest.Export(context.Background(), dir, checkpoint, quantize+"\nverify: {enabled: false}")
}

// The check pictures passes on a good package with a tower, and fails where the tower or what the engine is told about pictures is damaged,
// but the text model is not.
func TestPictures(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(e *edition)
		fails  []string
		detail string
	}{
		{"good", func(*edition) {}, nil, "; the engine's resize of pictures 3 times as large costs "},
		{"queries and keys swapped", func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/layers.0/self_attn/scores")
				slices.Reverse(a.Inputs)
			})
		}, []string{"pictures"}, "visual.mnn at the source's precision"},
		{"another epsilon", func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/projector/norm")
				a.Param.(*mnn.LayerNorm).Epsilon = 1
			})
		}, []string{"pictures"}, "visual.mnn at the source's precision"},
		{"cells in another order", func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/cells/each")
				a.Param.(*mnn.Permute).Dims = []int32{2, 1, 0, 3}
			})
		}, []string{"pictures"}, "visual.mnn at the source's precision"},
		{"a weight", func(e *edition) {
			e.span("linear_1", func(b []byte) { b[len(b)-9] ^= 0x40 })
		}, []string{"weights"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			last := judged(t, seeing, goodSeeing, c.damage, c.fails, c.detail)
			if kl, rows := last.Value["kl_resize"], last.Value["rows_resize"]; c.fails == nil && !(kl > 0 && kl < 10 && rows > 0.01 && rows < 2) {
				t.Errorf("the engine's resize costs %g nats, rows differ by %g", kl, rows)
			}
			if h := verify.Hint(manifest.Check{Name: "pictures", Value: last.Value}); h == "" || strings.Contains(h, "\n") {
				t.Errorf("hint %q", h)
			}
		})
	}
}

// judged runs the checks on a package that reads pictures or sound after damage, and demands those that fail and words of the last one.
func judged(t *testing.T, checkpoint string, export func() (string, error), damage func(e *edition), fails []string, detail string) manifest.Check {
	t.Helper()
	dir, err := export()
	if err != nil {
		t.Fatal(err)
	}
	p, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	e, check := edit(t, dir), "pictures"
	e.parts = p.Config.LLMExport.Parts
	if p.Audio() != nil {
		check = "sounds"
	}
	damage(e)
	e.seal()
	s := open(t, e.dir, checkpoint)
	s.Options.Window, s.Options.Windows = 32, 1
	limit := 1e6 // random weights know nothing of the text
	s.Options.Checks.Perplexity.MaxSource, s.Options.Checks.Perplexity.MaxRatio = &limit, &limit
	s.Manifest.Goldens = nil
	res, err := verify.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(res.Failed(), fails) {
		t.Errorf("failed: %v, want %v", res.Failed(), fails)
	}
	last := res.Checks[len(res.Checks)-1]
	t.Log(last.Detail)
	if last.Name != check || !strings.Contains(last.Detail, detail) {
		t.Errorf("%s: %s", last.Name, last.Detail)
	}
	return last
}

// The same for a tower that reads patches, and for the positions of its text model, of which pictures alone show a fault.
func TestGridPictures(t *testing.T) {
	const tower, model = "visual.mnn at the source's precision", "with pictures"
	for _, c := range []struct {
		name   string
		damage func(e *edition)
		fails  []string
		detail string
	}{
		{"good", func(*edition) {}, nil, "on a prompt with 2 pictures"},
		{"rows and columns swapped in the tower", func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				for _, name := range []string{"/rotary/cos", "/rotary/sin"} {
					_, a := op(e.t, g, name)
					slices.Reverse(a.Inputs)
				}
			})
		}, []string{"pictures"}, tower},
		{"counting on after the shorter edge", func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, a := op(e.t, g, "/places/edge")
				a.Param.(*mnn.Binary).Op = mnn.BinaryMinimum
			})
		}, []string{"pictures"}, model},
		{"rows and columns swapped in the text model", func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, row := op(e.t, g, "/places/axis_1/moved")
				_, column := op(e.t, g, "/places/axis_2/moved")
				row.Inputs[1], column.Inputs[1] = column.Inputs[1], row.Inputs[1]
			})
		}, []string{"pictures"}, model},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			judged(t, grid, goodGrid, c.damage, c.fails, c.detail)
		})
	}
	t.Run("weights of learned positions", func(t *testing.T) {
		t.Parallel()
		judged(t, learned, goodLearned, func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/positions/axis_1/part")
				a.Param.(*mnn.Binary).Op = mnn.BinaryAdd
			})
		}, []string{"pictures"}, tower)
	})
	t.Run("a filter that does not widen", func(t *testing.T) {
		t.Parallel()
		judged(t, smooth, goodSmooth, func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/positions/axis_0/wide")
				a.Param.(*mnn.Binary).Op = mnn.BinaryMinimum
			})
		}, []string{"pictures"}, tower)
	})
	t.Run("channels of pixels by planes", func(t *testing.T) {
		t.Parallel()
		judged(t, smooth, goodSmooth, func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/patches/pixels")
				a.Param.(*mnn.Permute).Dims = []int32{0, 1, 2}
			})
		}, []string{"pictures"}, tower)
	})
	t.Run("rows of the second output after other layers", func(t *testing.T) {
		t.Parallel()
		judged(t, deep, goodDeep, func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, a := op(e.t, g, "/deep/after_0/rows")
				_, b := op(e.t, g, "/deep/after_1/rows")
				a.Inputs, b.Inputs = b.Inputs, a.Inputs
			})
		}, []string{"pictures"}, model)
	})
	t.Run("squares of another size", func(t *testing.T) {
		t.Parallel()
		judged(t, square, goodSquare, func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/squares_4/axis_0")
				a.Param.(*mnn.Binary).Op = mnn.BinaryMinimum
			})
		}, []string{"pictures"}, tower)
	})
}

// The same for a tower of tiles. The check also costs the engine's resize of the tiles.
func TestTiledPictures(t *testing.T) {
	const tower = "visual.mnn at the source's precision"
	for _, c := range []struct {
		name   string
		damage func(e *edition)
		fails  []string
		detail string
	}{
		{"good", func(*edition) {}, nil, "; the engine's resize of pictures 3 times as large costs "},
		{"another start", func(e *edition) { e.json("llm_config.json", "vision_start", 7) }, []string{"pictures"}, "has vision_start 7, the source 3"},
		{"another end", func(e *edition) { e.json("llm_config.json", "vision_end", 7) }, []string{"pictures"}, "has vision_end 7, the source 3"},
		{"another word before the whole", func(e *edition) {
			e.json("llm_config.json", "global_image", 7)
		}, []string{"pictures"}, "has global_image 7, the source 3"},
		{"cells in another order", func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/cells/each")
				a.Param.(*mnn.Permute).Dims = []int32{2, 1, 0, 3}
			})
		}, []string{"pictures"}, tower},
		{"patches by columns", func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/patches/each")
				a.Param.(*mnn.Permute).Dims = []int32{0, 4, 2, 1, 3, 5}
			})
		}, []string{"pictures"}, tower},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			judged(t, tiled, goodTiled, c.damage, c.fails, c.detail)
		})
	}
}

// The same for a tower of slices.
func TestSlicedPictures(t *testing.T) {
	if testing.Short() {
		t.Skip("views of hundreds of patches")
	}
	const tower = "visual.mnn at the source's precision"
	for _, c := range []struct {
		name   string
		damage func(e *edition)
		fails  []string
		detail string
	}{
		{"good", func(*edition) {}, nil, "on a prompt with 2 pictures"},
		{"another slice", func(e *edition) {
			e.json("llm_config.json", "vision_slice_end_id", 7)
		}, []string{"pictures"}, "has vision_slice_end_id 7, the source 324"},
		{"rows for columns", func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/places/columns")
				slices.Reverse(a.Inputs)
			})
		}, []string{"pictures"}, tower},
		{"patches that are none", func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/mask/next")
				a.Param.(*mnn.Binary).Op = mnn.BinarySub
			})
		}, []string{"pictures"}, tower},
		{"queries without their norm", func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/gather/query_norm")
				a.Param.(*mnn.LayerNorm).Epsilon = 1
			})
		}, []string{"pictures"}, tower},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			judged(t, sliced, goodSliced, c.damage, c.fails, c.detail)
		})
	}
}

// The same for a tower of convolutions.
func TestStagedPictures(t *testing.T) {
	const tower = "visual.mnn at the source's precision"
	for _, c := range []struct {
		name   string
		damage func(g *mnn.Graph)
	}{
		{"a convolution of what was not mixed", func(g *mnn.Graph) {
			_, x := op(t, g, "/stages.0/blocks.0/near/pre_convert")
			_, y := op(t, g, "/stages.0/blocks.0/mix/pre_convert")
			x.Inputs = y.Inputs
		}},
		{"rows and columns of the first kernel swapped", func(g *mnn.Graph) {
			_, a := op(t, g, "/stages.0/enter.0/nine")
			in := a.Inputs
			for i := range 3 {
				for k := range i {
					in[3*i+k], in[3*k+i] = in[3*k+i], in[3*i+k]
				}
			}
		}},
		{"channels without their gains", func(g *mnn.Graph) {
			_, a := op(t, g, "/stages.5/enter.0/means")
			a.Param.(*mnn.Binary).Op = mnn.BinarySub
		}},
		{"another factor of attention", func(g *mnn.Graph) {
			_, a := op(t, g, "/layers.0/self_attn/factored")
			a.Param.(*mnn.Binary).Op = mnn.BinaryAdd
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			judged(t, staged, goodStaged, func(e *edition) { e.partGraph(mnn.VisualPart, c.damage) }, []string{"pictures"}, tower)
		})
	}
	t.Run("good", func(t *testing.T) {
		t.Parallel()
		judged(t, staged, goodStaged, func(*edition) {}, nil, "; the engine's resize of pictures 3 times as large costs ")
	})
}

// The same for pictures whose tokens attend to each other.
func TestMarkedPictures(t *testing.T) {
	const tower, model = "visual.mnn at the source's precision", "KL "
	for _, c := range []struct {
		name   string
		damage func(e *edition)
		fails  []string
		detail string
	}{
		{"good", func(*edition) {}, nil, "on a prompt with 2 pictures"},
		{"causal", func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, a := op(e.t, g, "/mask/causal/scores/beyond_picture")
				a.Param.(*mnn.Binary).Op = mnn.BinarySub
			})
		}, []string{"pictures"}, model},
		{"another factor", func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/projector/scale")
				a.Param.(*mnn.Binary).Op = mnn.BinaryRealDiv
			})
		}, []string{"pictures"}, tower},
		{"squares by columns", func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, "/means/squares")
				a.Param.(*mnn.Permute).Dims = []int32{2, 0, 1, 3, 4}
			})
		}, []string{"pictures"}, tower},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			judged(t, marked, goodMarked, c.damage, c.fails, c.detail)
		})
	}
}

// maxLogit bounds the difference of logits, which are up to about 5: two float32 programs sum in other orders.
const maxLogit = 3e-4

// A package of pictures of any size, or in tiles, has the logits of transformers in a whole conversation: two pictures, steps, a third
// picture, and again after a reset. Where positions have several axes, the graph counts those of every token after a picture.
func TestConversation(t *testing.T) {
	t.Parallel()
	for checkpoint, good := range map[string]func() (string, error){
		grid: goodGrid, square: goodSquare, learned: goodLearned, smooth: goodSmooth, deep: goodDeep, tiled: goodTiled, marked: goodMarked, padded: goodPadded,
		staged: goodStaged, sliced: goodSliced,
	} {
		if (checkpoint == padded || checkpoint == sliced) && testing.Short() {
			continue // thousands of patches
		}
		dir, err := good()
		if err != nil {
			t.Fatal(err)
		}
		p, err := runtime.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		want, err := stagetest.ReadPictures(checkpoint + "/pictures.safetensors")
		if err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string]backend.Backend{"cpu": cpu.Backend{}, "generic": generic.Backend{}} {
			t.Run(filepath.Base(checkpoint)+" "+name, func(t *testing.T) {
				tower, err := runtime.NewTower(p, b, runtime.Options{Threads: 2})
				if err != nil {
					t.Fatal(err)
				}
				s, err := runtime.NewSession(p, b, runtime.Options{Threads: 2})
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					s.Reset()
					converse(t, s, tower, want)
				}
			})
		}
	}
}

func converse(t *testing.T, s *runtime.Session, tower *runtime.Tower, want *stagetest.Pictures) {
	t.Helper()
	show := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			h, w := want.Size(i)
			seen, err := tower.See(t.Context(), &picture.Image{Height: h, Width: w, Pix: want.Images[i]})
			if err != nil {
				t.Fatal(err)
			}
			s.Show(seen)
		}
	}
	vocab, at := len(want.Logits)/len(want.IDs), 0
	forward := func(what string, n int) {
		got, err := s.Forward(t.Context(), want.IDs[at:at+n])
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range got {
			if d := x - want.Logits[at*vocab+i]; !(d >= -maxLogit && d <= maxLogit) {
				t.Fatalf("%s, token %d: logit %g, want %g", what, at+i/vocab, x, want.Logits[at*vocab+i])
			}
		}
		at += n
	}
	show(0, 2)
	forward("two pictures", want.Prompt)
	for range want.Steps {
		forward("a step", 1)
	}
	show(2, 3)
	forward("a third picture", len(want.IDs)-at)
}
