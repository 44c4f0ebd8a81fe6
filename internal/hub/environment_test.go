//go:build hub

package hub

import (
	"cmp"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// TestEnvironmentAsTheirs holds that variables mean here what they mean to the Python library.
func TestEnvironmentAsTheirs(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for name, text := range map[string]string{".cache/huggingface/token": "hf_login\n", "other": " hf_other\r\n", "empty": "\n", "hf/token": "hf_home"} {
		if err := replaceFile(filepath.Join(home, filepath.FromSlash(name)), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	cases := []map[string]string{
		{},
		{"XDG_CACHE_HOME": "/x"},
		{"XDG_CACHE_HOME": "~/xdg"},
		{"XDG_CACHE_HOME": "/x", "HF_HOME": "~/hf"},
		{"HF_HOME": "$HOME/a"},
		{"HF_HOME": "${HOME}/a"},
		{"HF_HOME": "$NONE/a"},
		{"HF_HOME": "/a/${NONE}/b"},
		{"HF_HOME": "/a$/$$b/${}/c"},
		{"HF_HUB_CACHE": "~/c", "HF_HOME": "/h"},
		{"HF_HUB_CACHE": "relative"},
		{"HF_HUB_CACHE": "/a%HOME%"},
		{"HUGGINGFACE_HUB_CACHE": "~/old"},
		{"HF_HUB_CACHE": "/new", "HUGGINGFACE_HUB_CACHE": "/old"},
		{"HF_TOKEN_PATH": "~/other"},
		{"HF_TOKEN_PATH": "$HOME/other"},
		{"HF_TOKEN_PATH": "~/empty"},
		{"HF_TOKEN_PATH": "/none"},
		{"HF_TOKEN": "hf_env", "HF_TOKEN_PATH": "~/other"},
		{"HF_TOKEN": ""},
		{"HF_TOKEN": "  "},
		{"HF_TOKEN": " hf_env\n"},
		{"HUGGING_FACE_HUB_TOKEN": "hf_old"},
		{"HF_TOKEN": "hf_env", "HUGGING_FACE_HUB_TOKEN": "hf_old"},
		{"HF_TOKEN": "hf_env", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"},
		{"HF_HUB_DISABLE_IMPLICIT_TOKEN": "true"},
		{"HF_HUB_DISABLE_IMPLICIT_TOKEN": "0"},
		{"HF_HUB_OFFLINE": "on"},
		{"HF_HUB_OFFLINE": "TrUe"},
		{"HF_HUB_OFFLINE": "2"},
		{"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "1"},
		{"TRANSFORMERS_OFFLINE": "yes"},
		{"HF_HUB_DISABLE_SYMLINKS": "YES"},
		{"HF_HUB_ETAG_TIMEOUT": "3", "HF_HUB_DOWNLOAD_TIMEOUT": " 7 "},
		{"HF_HUB_ETAG_TIMEOUT": "0", "HF_HUB_DOWNLOAD_TIMEOUT": "0"},
		{"HF_ENDPOINT": "https://m.example//"},
	}
	type meaning struct {
		Cache, Token, Endpoint string
		Offline, Copies        bool
		Ask, Stall             int // seconds
	}
	b, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	var theirs []meaning
	runClient(t, Options{}, "environment", &theirs, "HOME="+home, "CASES="+string(b))
	if len(theirs) != len(cases) {
		t.Fatalf("%d answers to %d cases", len(theirs), len(cases))
	}
	for i, env := range cases {
		o, err := optionsFrom(func(key string) string {
			if key == "HOME" {
				return home
			}
			return env[key]
		})
		cache, absErr := filepath.Abs(o.CacheDir)
		if err := errors.Join(err, absErr); err != nil {
			t.Errorf("%v: %v", env, err)
			continue
		}
		// Theirs has no limit but this one; ours is another where none is set.
		stall, ask := cmp.Or(o.Stall, 10*time.Second), cmp.Or(o.Ask, askTime)
		ours := meaning{cache, o.Token, o.Endpoint, o.Offline, o.NoLinks, int(ask / time.Second), int(stall / time.Second)}
		if d := gocmp.Diff(theirs[i], ours); d != "" {
			t.Errorf("%v: theirs (-), ours (+): %s", env, d)
		}
	}
}
