package publish

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/publish/dir"
	"github.com/llmexport/llmexport/publish/place/placetest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestTargetHub(t *testing.T) {
	var entry Target
	if err := json.Unmarshal([]byte(`{"hub":"a/b","private":true,"gated":"auto","branch":"x","tag":"v","message":"m"}`), &entry); err != nil {
		t.Fatal(err)
	}
	s, err := New(entry, ".")
	if err != nil {
		t.Fatal(err)
	}
	if s.String() != "hub a/b@x" || s.Public() {
		t.Errorf("%s, public %v", s, s.Public())
	}
	for _, bad := range []Target{{Hub: "b"}, {Hub: "a/b", Replace: true}, {Hub: "a/b", Gated: "x"}, {Hub: "a/b/c"}} {
		if _, err := New(bad, "."); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// TestHubPulled publishes to both kinds of hubs at once and pulls from either, as users do.
func TestHubPulled(t *testing.T) {
	h := placetest.NewHub(t)
	for key, v := range map[string]string{"HF_ENDPOINT": h.URL, "HF_TOKEN": fakehub.Token, "HF_HOME": t.TempDir(), "HF_HUB_OFFLINE": "",
		"MODELSCOPE_ENDPOINT": h.URL, "MODELSCOPE_API_TOKEN": fakehub.Token} {
		t.Setenv(key, v)
	}
	p := placetest.HubPackage(t, 1)
	p.Manifest.Source.License = "mit"
	targets := []Target{{Hub: "tester/{name}-hf", Endpoint: h.URL}, {ModelScope: "tester/{name}-ms", Private: true}}
	places, err := Places(targets, ".", Values{Name: p.Manifest.Name})
	if err != nil {
		t.Fatal(err)
	}
	receipts, err := All(h.Ctx, places, p)
	if err != nil || len(receipts) != 2 {
		t.Fatalf("%+v, %v", receipts, err)
	}
	for _, r := range receipts {
		to := filepath.Join(t.TempDir(), "tiny")
		got, pulled, err := Pull(h.Ctx, r.Ref, to, PullOptions{PullOptions: dir.PullOptions{Digest: r.Digest}})
		if err != nil {
			t.Fatal(err)
		}
		if pulled.From != r.Ref || pulled.Bytes != r.Bytes || got.Manifest.Digest != r.Digest {
			t.Errorf("%+v", pulled)
		}
		if err := got.Manifest.VerifyFiles(h.Ctx, to); err != nil {
			t.Error(err)
		}
	}
	// What is pulled from changes meanwhile: the commit stays.
	h.Repo("tester/tiny-hf").Commit("main", map[string][]byte{"config.json": []byte("another")})
	if _, _, err := Pull(h.Ctx, receipts[0].Ref, filepath.Join(t.TempDir(), "x"), PullOptions{}); err != nil {
		t.Error(err)
	}
	if _, _, err := Pull(h.Ctx, "hf://tester/tiny-hf", filepath.Join(t.TempDir(), "y"), PullOptions{}); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("changed: %v", err)
	}
}
