package dir

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

// TestSignFails stops the signing of a package that is there at every step: it has the signature or not, and all else
// is as it was.
func TestSignFails(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for name, first := range map[string]string{"signed": "", "signed again": "one"} {
		plain := func() place.Package {
			if first == "" {
				return placetest.Package(t, "one")
			}
			return placetest.Signed(t, placetest.Package(t, "one"), first)
		}
		p := placetest.Signed(t, placetest.Package(t, "one"), "two")
		var steps []string
		target := filepath.Join(t.TempDir(), "out")
		placetest.Publish(t, Place{Path: target}, plain())
		if err := revertDirs(t.Context(), target, p, func(a string) error { steps = append(steps, a); return nil }); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		placetest.Want(t, target, plain())
		if len(steps) < 6 {
			t.Errorf("steps %q", steps)
		}
		for i, action := range steps {
			t.Run(name+"/"+action, func(t *testing.T) {
				target := filepath.Join(t.TempDir(), "out")
				placetest.Publish(t, Place{Path: target}, plain())
				n := 0
				_, err := place.To(t.Context(), Place{Path: target, Replace: true, step: func(string) error {
					if n++; n == i+1 {
						return syscall.ENOSPC
					}
					return nil
				}}, p)
				if n <= i { // a step of taking back
					placetest.Want(t, target, p)
					return
				}
				if !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("got %v", err)
				}
				placetest.Want(t, target, plain())
				placetest.Publish(t, Place{Path: target, Replace: true}, p)
				placetest.Want(t, target, p)
			})
		}
	}
}

// TestSignDamaged: a package that is written again keeps its signature.
func TestSignDamaged(t *testing.T) {
	p := placetest.Signed(t, placetest.Package(t, "one"), "one")
	target := filepath.Join(t.TempDir(), "out")
	placetest.Publish(t, Place{Path: target}, p)
	damage := func() { placetest.Write(t, filepath.Join(target, "llm.mnn"), "llm.mnn onf") }
	damage()
	placetest.Publish(t, Place{Path: target, Replace: true}, placetest.Package(t, "one"))
	placetest.Want(t, target, p)
	damage()
	mustPull(t, newOrigin(t, placetest.Package(t, "one")), target, PullOptions{Replace: true})
	placetest.Want(t, target, p)
}

// TestSignatureUnknown: a place that does not say whether it has a signature gives no package without one.
func TestSignatureUnknown(t *testing.T) {
	o := newOrigin(t, placetest.Package(t, "one"))
	o.unsure = syscall.ECONNRESET
	out := filepath.Join(t.TempDir(), "out")
	if _, _, err := Pull(t.Context(), o, out, PullOptions{}); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
	placetest.Alone(t, out)
}
