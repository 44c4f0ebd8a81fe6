package publish

import (
	"errors"
	"github.com/llmexport/llmexport/publish/place"
	"path/filepath"
	"syscall"
	"testing"
)

// TestSignFails stops the signing of a package that is there at every step: it has the signature or not, and all else
// is as it was.
func TestSignFails(t *testing.T) {
	for name, first := range map[string]string{"signed": "", "signed anew": "one"} {
		plain := func() place.Package {
			if first == "" {
				return newPackage(t, "one")
			}
			return signed(t, newPackage(t, "one"), first)
		}
		p := signed(t, newPackage(t, "one"), "two")
		var steps []string
		target := filepath.Join(t.TempDir(), "out")
		mustPublish(t, Dir{Path: target}, plain())
		if err := revertDirs(t.Context(), target, p, func(a string) error { steps = append(steps, a); return nil }); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		wantPackage(t, target, plain())
		if len(steps) < 6 {
			t.Errorf("steps %q", steps)
		}
		for i, action := range steps {
			t.Run(name+"/"+action, func(t *testing.T) {
				target := filepath.Join(t.TempDir(), "out")
				mustPublish(t, Dir{Path: target}, plain())
				n := 0
				_, err := place.To(t.Context(), Dir{Path: target, Replace: true, step: func(string) error {
					if n++; n == i+1 {
						return syscall.ENOSPC
					}
					return nil
				}}, p)
				if n <= i { // a step of taking back
					wantPackage(t, target, p)
					return
				}
				if !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("got %v", err)
				}
				wantPackage(t, target, plain())
				mustPublish(t, Dir{Path: target, Replace: true}, p)
				wantPackage(t, target, p)
			})
		}
	}
}

// TestSignDamaged: a package that is written again keeps its signature.
func TestSignDamaged(t *testing.T) {
	p := signed(t, newPackage(t, "one"), "one")
	target := filepath.Join(t.TempDir(), "out")
	mustPublish(t, Dir{Path: target}, p)
	damage := func() { write(t, filepath.Join(target, "llm.mnn"), "llm.mnn onf") }
	damage()
	mustPublish(t, Dir{Path: target, Replace: true}, newPackage(t, "one"))
	wantPackage(t, target, p)
	damage()
	mustPull(t, newOrigin(t, newPackage(t, "one")), target, dirPullOptions{Replace: true})
	wantPackage(t, target, p)
}

// TestSignatureUnknown: a place that does not say whether it has a signature gives no package without one.
func TestSignatureUnknown(t *testing.T) {
	o := newOrigin(t, newPackage(t, "one"))
	o.unsure = syscall.ECONNRESET
	out := filepath.Join(t.TempDir(), "out")
	if _, _, err := dirPull(t.Context(), o, out, dirPullOptions{}); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
	wantAlone(t, out)
}
