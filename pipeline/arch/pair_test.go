package arch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Configs in the shape of published models: calibration knows all of them but those whose branches are parallel.
func TestPairsOfHub(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "hub", "*.json"))
	if err != nil || len(files) < 15 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		t.Run(name, func(t *testing.T) {
			config, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var ignore []string
			if strings.HasPrefix(name, "internlm2") {
				ignore = []string{"rope_scaling"} // depends on the length
			}
			d, err := describeKeys(t, config, checkpoint{}, ignore...)
			if err != nil {
				t.Fatal(err)
			}
			err = d.CheckPairs()
			if want := !slices.Contains([]string{"phi-2", "pythia-1.4b"}, name); (err == nil) != want {
				t.Errorf("%v, known should be %v", err, want)
			}
		})
	}
}

func TestPairsRefused(t *testing.T) {
	attention, mlp := func() *Attention { return &Attention{} }, func() *MLP { return &MLP{Activation: SiLU} }
	for _, c := range []struct {
		want  string
		layer Layer
	}{
		{"1 branches", Layer{{Block: attention()}}},
		{"parallel branches", Layer{{Block: attention()}, {Block: mlp(), Parallel: true}}},
		{"no attention", Layer{{Block: mlp()}, {Block: mlp()}}},
		{"no MLP", Layer{{Block: attention()}, {Block: &Experts{}}}},
		{"attention sinks", Layer{{Block: &Attention{Sinks: Weight{Tensor: "sinks"}}}, {Block: mlp()}}},
		{"attention temperature", Layer{{Block: &Attention{Temperature: &Temperature{}}}, {Block: mlp()}}},
		{"an MLP of another kind", Layer{{Block: attention()}, {Block: &MLP{Activation: ClampedSwiGLU}}}},
	} {
		d := &Decoder{Layers: []Layer{{{Block: attention()}, {Block: mlp()}}, c.layer}}
		if err := d.CheckPairs(); !errors.Is(err, tensor.ErrUnsupported) || !strings.HasPrefix(err.Error(), "layer 1: "+c.want+": ") {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
