package hub

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/transfer"
)

// DefaultEndpoint is the public hub.
const DefaultEndpoint = "https://huggingface.co"

// endpoints are the public hubs by source.
var endpoints = map[string]string{"": DefaultEndpoint, ModelScope: "https://modelscope.cn"}

// OptionsFromEnv reads what huggingface_hub reads: HF_ENDPOINT; HF_HOME, HF_HUB_CACHE and their older
// or more general forms for the cache; HF_TOKEN, or the file that HF_TOKEN_PATH names or that a login
// left, unless HF_HUB_DISABLE_IMPLICIT_TOKEN is set; HF_HUB_OFFLINE; HF_HUB_DISABLE_SYMLINKS;
// HF_HUB_DOWNLOAD_TIMEOUT and HF_HUB_ETAG_TIMEOUT in seconds; HF_HUB_USER_AGENT_ORIGIN. The error is that of a token file
// that exists and cannot be read, of a number that is none, or of a user without a home.
func OptionsFromEnv() (Options, error) { return optionsFrom(os.Getenv) }

// ModelScopeFromEnv reads what modelscope-hub reads of its own, and the rest as [OptionsFromEnv] does:
// MODELSCOPE_ENDPOINT, or else MODELSCOPE_DOMAIN, and MODELSCOPE_API_TOKEN. The cache is that of Hugging Face's hub,
// since that of ModelScope's library keeps files under the names of branches and has no digests. What a login of that
// library left is not read, for it is a Python program.
func ModelScopeFromEnv() (Options, error) { return modelScopeFrom(os.Getenv) }

func modelScopeFrom(getenv func(string) string) (Options, error) {
	o, err := optionsFrom(func(key string) string {
		switch key {
		case "HF_HUB_DISABLE_IMPLICIT_TOKEN":
			return "1"
		case "HF_ENDPOINT":
			return ""
		}
		return getenv(key)
	})
	if err != nil {
		return Options{}, err
	}
	o.Source, o.Token = ModelScope, strings.TrimSpace(getenv("MODELSCOPE_API_TOKEN"))
	o.Endpoint = strings.TrimRight(strings.TrimSpace(cmp.Or(getenv("MODELSCOPE_ENDPOINT"), getenv("MODELSCOPE_DOMAIN"), endpoints[ModelScope])), "/")
	if !strings.Contains(o.Endpoint, "://") {
		o.Endpoint = "https://" + o.Endpoint
	}
	return o, nil
}

// At is o for another endpoint, as a recipe may name one. The token goes along only if that is the same server: it was
// given for the endpoint of the environment, and a recipe may come from anyone.
func (o Options) At(endpoint string) Options {
	from, err := url.Parse(cmp.Or(o.Endpoint, endpoints[o.Source]))
	to, toErr := url.Parse(endpoint)
	if err != nil || toErr != nil || from.Scheme != to.Scheme || !strings.EqualFold(from.Host, to.Host) {
		o.Token = ""
	}
	o.Endpoint = strings.TrimRight(endpoint, "/")
	return o
}

func optionsFrom(getenv func(string) string) (Options, error) {
	home := func(elem ...string) (string, error) {
		h, err := homeDir()
		return filepath.Join(append([]string{h}, elem...)...), err
	}
	// dir expands the ~ and the variables that people write into these settings; what is not set stays as it is.
	dir := func(s string) (string, error) {
		if rest, ok := strings.CutPrefix(s, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
			h, err := home(rest)
			if err != nil {
				return "", err
			}
			s = h
		}
		return variable.ReplaceAllStringFunc(s, func(v string) string { return cmp.Or(getenv(strings.Trim(v, "${}")), v) }), nil
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
		Offline:  isTrue(cmp.Or(getenv("HF_HUB_OFFLINE"), getenv("TRANSFORMERS_OFFLINE"))),
		NoLinks:  isTrue(getenv("HF_HUB_DISABLE_SYMLINKS")),
	}
	o.Stall, err = seconds("HF_HUB_DOWNLOAD_TIMEOUT", getenv)
	if err == nil {
		o.Ask, err = seconds("HF_HUB_ETAG_TIMEOUT", getenv)
	}
	if err != nil {
		return Options{}, err
	}
	if s := getenv("HF_HUB_USER_AGENT_ORIGIN"); s != "" {
		o.UserAgent = "llmexport; origin/" + transfer.Said(s)
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
		b, err := disk.ReadFile(path, 10_000)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Options{}, fmt.Errorf("hub token: %w", err)
		}
		o.Token = strings.TrimSpace(string(b))
	}
	return o, nil
}

// homeDir is that of the variable or, as huggingface_hub has it, of the system's list of users.
func homeDir() (string, error) {
	h, err := os.UserHomeDir()
	if err == nil {
		return h, nil
	}
	if u, uerr := user.Current(); uerr == nil && u.HomeDir != "" {
		return u.HomeDir, nil
	}
	return "", fmt.Errorf("%w: set it, or HF_HOME", err)
}

// seconds reads a setting that may be absent or 0, which both mean the default.
func seconds(name string, getenv func(string) string) (time.Duration, error) {
	s := strings.TrimSpace(getenv(name))
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%s is %.40q, not a number of seconds", name, s)
	}
	return time.Duration(n) * time.Second, nil
}

// variable is what Python expands in a path, os.Expand takes more for one.
var variable = regexp.MustCompile(`\$(\w+|\{[^}]*\})`)

func isTrue(s string) bool {
	switch strings.ToUpper(s) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}
