package hub

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// DefaultEndpoint is the public hub.
const DefaultEndpoint = "https://huggingface.co"

// OptionsFromEnv reads what huggingface_hub reads: HF_ENDPOINT; HF_HOME, HF_HUB_CACHE and their older
// or more general forms for the cache; HF_TOKEN, or the file that HF_TOKEN_PATH names or that a login
// left, unless HF_HUB_DISABLE_IMPLICIT_TOKEN is set; HF_HUB_OFFLINE. The error is that of a token file
// that exists and cannot be read, or of a user without a home.
func OptionsFromEnv() (Options, error) { return optionsFrom(os.Getenv) }

func optionsFrom(getenv func(string) string) (Options, error) {
	home := func(elem ...string) (string, error) {
		h, err := os.UserHomeDir()
		return filepath.Join(append([]string{h}, elem...)...), err
	}
	// dir expands the variables and the ~ that people write into these settings.
	dir := func(s string) (string, error) {
		s = os.Expand(s, getenv)
		if rest, ok := strings.CutPrefix(s, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
			return home(rest)
		}
		return s, nil
	}

	hf, err := dir(getenv("HF_HOME"))
	if hf == "" && err == nil {
		if x := getenv("XDG_CACHE_HOME"); x != "" {
			hf, err = dir(filepath.Join(x, "huggingface"))
		} else {
			hf, err = home(".cache", "huggingface")
		}
	}
	if err != nil {
		return Options{}, fmt.Errorf("hub cache: %w", err)
	}
	o := Options{
		Endpoint: cmp.Or(strings.TrimRight(getenv("HF_ENDPOINT"), "/"), DefaultEndpoint),
		Offline:  isTrue(getenv("HF_HUB_OFFLINE")) || isTrue(getenv("TRANSFORMERS_OFFLINE")),
	}
	o.CacheDir, err = dir(cmp.Or(getenv("HF_HUB_CACHE"), getenv("HUGGINGFACE_HUB_CACHE"), filepath.Join(hf, "hub")))
	if err != nil {
		return Options{}, fmt.Errorf("hub cache: %w", err)
	}
	if isTrue(getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		return o, nil
	}
	o.Token = strings.TrimSpace(cmp.Or(getenv("HF_TOKEN"), getenv("HUGGING_FACE_HUB_TOKEN")))
	if o.Token == "" {
		path, err := dir(cmp.Or(getenv("HF_TOKEN_PATH"), filepath.Join(hf, "token")))
		if err != nil {
			return Options{}, fmt.Errorf("hub token: %w", err)
		}
		b, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Options{}, fmt.Errorf("hub token: %w", err)
		}
		o.Token = strings.TrimSpace(string(b))
	}
	return o, nil
}

func isTrue(s string) bool {
	switch strings.ToUpper(s) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}
