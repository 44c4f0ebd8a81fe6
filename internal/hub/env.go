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

// DefaultEndpoint is the public Hugging Face hub.
const DefaultEndpoint = "https://huggingface.co"

// endpoints are the public hubs by source.
var endpoints = map[string]string{"": DefaultEndpoint, ModelScope: "https://modelscope.cn"}

// OptionsFromEnv reads the variables that huggingface_hub reads: HF_ENDPOINT; HF_HOME, HF_HUB_CACHE and their older or more
// general forms for the cache; HF_TOKEN, or the file that HF_TOKEN_PATH names or that a login left, unless
// HF_HUB_DISABLE_IMPLICIT_TOKEN is set; HF_HUB_OFFLINE; HF_HUB_DISABLE_SYMLINKS; HF_HUB_DOWNLOAD_TIMEOUT and HF_HUB_ETAG_TIMEOUT
// in seconds; HF_HUB_USER_AGENT_ORIGIN. It returns an error for an existing token file that cannot be read, for an invalid
// number, and for a user without a home directory.
func OptionsFromEnv() (Options, error) { return optionsFrom(os.Getenv) }

// ModelScopeFromEnv reads the variables of modelscope-hub, and the rest as [OptionsFromEnv] does: MODELSCOPE_ENDPOINT, or else
// MODELSCOPE_DOMAIN, and MODELSCOPE_API_TOKEN. The cache is the Hugging Face cache, because ModelScope's library stores files
// under branch names and keeps no digests. The login of that library is not read, because it is stored as a Python pickle.
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

// At returns o for another endpoint, such as one named by a recipe. It keeps the token only if both are the same server: the
// token was given for the endpoint of the environment, and a recipe may come from anyone.
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
	// dir expands ~ and the variables that people write into these settings; unset variables stay as they are.
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

// homeDir returns the home directory from the variable or, as in huggingface_hub, from the system's list of users.
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

// seconds reads a number of seconds; an unset variable and 0 both mean the default.
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

// variable matches the variables that Python expands in a path; os.Expand accepts more.
var variable = regexp.MustCompile(`\$(\w+|\{[^}]*\})`)

func isTrue(s string) bool {
	switch strings.ToUpper(s) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}
