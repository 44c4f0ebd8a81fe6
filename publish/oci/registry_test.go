//go:build registry

package oci

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/blob/blobtest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

// startRegistry runs the registry of the CNCF distribution project, as Debian packages it.
func startRegistry(t *testing.T) string {
	bin := os.Getenv("REGISTRY_BIN")
	if bin == "" {
		t.Skip("REGISTRY_BIN names no docker-registry")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	dir := t.TempDir()
	config := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage:\n  filesystem: {rootdirectory: %s}\n  delete: {enabled: "+
		"true}\nhttp: {addr: %s}\n", filepath.Join(dir, "data"), addr)
	placetest.Write(t, filepath.Join(dir, "config.yml"), config)
	cmd := exec.Command(bin, "serve", filepath.Join(dir, "config.yml"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for range 100 {
		if resp, err := http.Get("http://" + addr + "/v2/"); err == nil {
			resp.Body.Close()
			return addr
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the registry does not answer")
	return ""
}

func TestRealRegistry(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	addr := startRegistry(t)
	one, big := placetest.Package(t, "one"), placetest.Big(t, 5*chunkSize+77)
	ref := addr + "/org/tiny:v1"
	store := Place{Ref: ref, Transfer: placetest.Quick}
	r, err := place.To(t.Context(), store, one)
	if err != nil {
		t.Fatal(err)
	}
	wantAt(t, ref, one)
	store.Replace = true
	staged, err := store.Stage(t.Context(), big)
	if err != nil {
		t.Fatal(err)
	}
	wantAt(t, ref, one)
	if _, err := staged.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantAt(t, ref, big)
	if err := staged.Revert(t.Context()); err != nil {
		t.Error(err)
	}
	wantAt(t, ref, one)
	if again, err := place.To(t.Context(), store, one); err != nil || again.Status != place.Unchanged || again.Ref != r.Ref {
		t.Errorf("%+v, %v", again, err)
	}
	if again, err := place.To(t.Context(), store, big); err != nil || again.Uploaded != 0 {
		t.Errorf("%+v, %v", again, err)
	}

	t.Run("new and reverted", func(t *testing.T) {
		store := Place{Ref: addr + "/org/other:v1", Transfer: placetest.Quick}
		staged, err := store.Stage(t.Context(), one)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := staged.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := staged.Revert(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := Open(t.Context(), addr+"/org/other:v1", place.OpenOptions{Transfer: placetest.Quick}); err == nil {
			t.Error("still there")
		}
	})
	t.Run("channels", func(t *testing.T) {
		ref := func(tag string) string { return addr + "/org/channels" + tag }
		story := shelfAt(t.Context(), ref)
		story.Run(t)
		t.Run("collision", story.Collision)
		t.Run("annotations", func(t *testing.T) { testAnnotations(t, ref) })
	})
	t.Run("blobs", func(t *testing.T) { blobtest.Run(t, openBlobs(t, addr+"/org/blobs")) })
	t.Run("killed", func(t *testing.T) {
		placetest.Kill(t, placetest.Killable{
			Open: openRef,
			Place: func(i int) ([]string, string) {
				ref := fmt.Sprintf("%s/org/killed%d:v1", addr, i)
				return []string{publishTo + "=" + ref}, "oci://" + ref
			},
			Sent: func() int64 { return 0 },
		}, placetest.Kills(20), placetest.Big(t, 9*chunkSize+1))
	})
}
