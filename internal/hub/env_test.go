package hub

import (
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestOptionsFromEnv(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	put := func(path, text string) {
		t.Helper()
		if err := replaceFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	hf := filepath.Join(home, ".cache", "huggingface")
	put(filepath.Join(hf, "token"), "hf_login\n")
	put(filepath.Join(dir, "other"), " hf_other ")
	for _, c := range []struct {
		name string
		env  map[string]string
		want Options
	}{
		{"nothing", nil, Options{Endpoint: DefaultEndpoint, CacheDir: filepath.Join(hf, "hub"), Token: "hf_login"}},
		{"XDG", map[string]string{"XDG_CACHE_HOME": dir}, Options{Endpoint: DefaultEndpoint, CacheDir: filepath.Join(dir, "huggingface", "hub")}},
		{"HF_HOME", map[string]string{"HF_HOME": dir, "XDG_CACHE_HOME": "x"}, Options{Endpoint: DefaultEndpoint, CacheDir: filepath.Join(dir, "hub")}},
		{"HF_HOME in the home", map[string]string{"HF_HOME": "~/hf"}, Options{Endpoint: DefaultEndpoint, CacheDir: filepath.Join(home, "hf", "hub")}},
		{"variable", map[string]string{"HF_HOME": "$SCRATCH/hf", "SCRATCH": dir}, Options{Endpoint: DefaultEndpoint, CacheDir: filepath.Join(dir, "hf", "hub")}},
		{"cache", map[string]string{"HF_HUB_CACHE": dir, "HUGGINGFACE_HUB_CACHE": "old"}, Options{Endpoint: DefaultEndpoint, CacheDir: dir, Token: "hf_login"}},
		{"old cache", map[string]string{"HUGGINGFACE_HUB_CACHE": dir}, Options{Endpoint: DefaultEndpoint, CacheDir: dir, Token: "hf_login"}},
		{"token", map[string]string{"HF_TOKEN": " hf_env\n", "HF_HUB_CACHE": dir}, Options{Endpoint: DefaultEndpoint, CacheDir: dir, Token: "hf_env"}},
		{"token file", map[string]string{"HF_TOKEN_PATH": filepath.Join(dir, "other"), "HF_HUB_CACHE": dir}, Options{Endpoint: DefaultEndpoint,
			CacheDir: dir, Token: "hf_other"}},
		{"no token", map[string]string{"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "HF_TOKEN": "x", "HF_HUB_CACHE": dir}, Options{Endpoint: DefaultEndpoint,
			CacheDir: dir}},
		{"endpoint, offline", map[string]string{"HF_ENDPOINT": "https://mirror.example/", "HF_HUB_OFFLINE": "yes", "HF_HUB_CACHE": dir, "HF_TOKEN": "t"},
			Options{Endpoint: "https://mirror.example", CacheDir: dir, Token: "t", Offline: true}},
		{"variable that is not set", map[string]string{"HF_HUB_CACHE": "/x/$NONE/y"}, Options{Endpoint: DefaultEndpoint, CacheDir: "/x/$NONE/y", Token: "hf_login"}},
		{"others", map[string]string{"HF_HUB_CACHE": dir, "HF_TOKEN": "t", "HF_HUB_DOWNLOAD_TIMEOUT": "30", "HF_HUB_ETAG_TIMEOUT": "3",
			"HF_HUB_DISABLE_SYMLINKS": "1", "HF_HUB_USER_AGENT_ORIGIN": "a\r\nb"},
			Options{Endpoint: DefaultEndpoint, CacheDir: dir, Token: "t", Stall: 30 * time.Second, Ask: 3 * time.Second, NoLinks: true,
				UserAgent: "llmexport; origin/a b"}},
		{"not offline", map[string]string{"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "off", "HF_HUB_CACHE": dir, "HF_TOKEN": "t"},
			Options{Endpoint: DefaultEndpoint, CacheDir: dir, Token: "t"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := optionsFrom(func(k string) string { return c.env[k] })
			if d := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(Options{})); d != "" || err != nil {
				t.Error(d, err)
			}
		})
	}
	if err := os.Mkdir(filepath.Join(dir, "token"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := optionsFrom(func(k string) string { return map[string]string{"HF_HOME": dir}[k] }); err == nil {
		t.Error("an unreadable token file is ignored")
	}
}

func TestModelScopeFromEnv(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		env  map[string]string
		want Options
	}{
		{"nothing", nil, Options{Endpoint: "https://modelscope.cn"}},
		{"endpoint", map[string]string{"MODELSCOPE_ENDPOINT": "https://m.example/", "MODELSCOPE_DOMAIN": "other"}, Options{Endpoint: "https://m.example"}},
		{"domain", map[string]string{"MODELSCOPE_DOMAIN": "www.modelscope.ai"}, Options{Endpoint: "https://www.modelscope.ai"}},
		{"token", map[string]string{"MODELSCOPE_API_TOKEN": "ms \n", "HF_TOKEN": "hf", "HF_ENDPOINT": "https://hf.example", "HF_HUB_OFFLINE": "1"},
			Options{Endpoint: "https://modelscope.cn", Token: "ms", Offline: true}},
	} {
		got, err := modelScopeFrom(func(k string) string {
			if k == "HF_HUB_CACHE" {
				return dir
			}
			return c.env[k]
		})
		c.want.Source, c.want.CacheDir = ModelScope, dir
		if d := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(Options{})); d != "" || err != nil {
			t.Error(c.name, d, err)
		}
	}
	if _, err := optionsFrom(func(k string) string { return map[string]string{"HF_HUB_DOWNLOAD_TIMEOUT": "soon"}[k] }); err == nil ||
		!strings.Contains(err.Error(), "HF_HUB_DOWNLOAD_TIMEOUT") {
		t.Error(err)
	}
}

// Without HOME the cache is where huggingface_hub has it then, too: in the home that the system knows.
func TestWithoutHome(t *testing.T) {
	u, err := user.Current()
	if err != nil || u.HomeDir == "" || runtime.GOOS == "windows" {
		t.Skip("the system knows no home")
	}
	t.Setenv("HOME", "")
	o, err := optionsFrom(func(string) string { return "" })
	if want := filepath.Join(u.HomeDir, ".cache", "huggingface", "hub"); err != nil || o.CacheDir != want {
		t.Errorf("%q, %v, want %q", o.CacheDir, err, want)
	}
}

// An endpoint that is none is said by the name of its variable, and not by what may be a password.
func TestEndpointIsNamed(t *testing.T) {
	for source, want := range map[string]string{"": "HF_ENDPOINT: ", ModelScope: "MODELSCOPE_ENDPOINT: "} {
		_, err := newClient(Options{Source: source, Endpoint: "hub.example:80/hush", CacheDir: t.TempDir()}, "a/b")
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
