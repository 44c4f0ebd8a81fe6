package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

// Values replace the placeholders of publish entries. They are facts of the package and its source, never of the run, so
// that a second run publishes to the same places. An empty value is unknown.
type Values struct {
	// Name is the name of the package.
	Name string
	// Commit is that of the model repository.
	Commit string
	// Revision is the branch, tag or commit of the recipe.
	Revision string
	// Date is the day of the commit in UTC, such as 2026-11-23.
	Date string
	// Version is that of the program that makes the package.
	Version string
}

// placeholder is a word in braces that stands for a value.
type placeholder struct {
	word    string
	value   func(Values) string
	unknown string // why a value may be unknown, and what helps
}

var placeholders = []placeholder{
	{"name", func(v Values) string { return v.Name }, "the package has no name"},
	{commitWord, func(v Values) string { return v.Commit }, "the source is a directory, which has no commits"},
	{"revision", func(v Values) string { return v.Revision }, "the source is a directory, or the package records only its commit"},
	{DateWord, func(v Values) string { return v.Date }, "the source is not a repository of Hugging Face; set SOURCE_DATE_EPOCH to seconds since 1970"},
	{"version", func(v Values) string { return v.Version }, "the package does not name the program that made it"},
}

const (
	commitWord = "commit"
	// DateWord is the placeholder of the date.
	DateWord = "date"
)

// placeholderRE matches a placeholder: a word, and for a commit the number of its first digits.
var placeholderRE = regexp.MustCompile(`\{([A-Za-z_]*)(?::([0-9]+))?\}`)

// known lists the placeholders.
func known() string {
	var list []string
	for _, p := range placeholders {
		list = append(list, "{"+p.word+"}")
		if p.word == commitWord {
			list = append(list, "{commit:8}")
		}
	}
	return strings.Join(list, ", ")
}

// fill replaces the placeholders in the value of a key.
func (v Values) fill(key, text string) (string, error) {
	if rest := placeholderRE.ReplaceAllString(text, ""); strings.ContainsAny(rest, "{}") {
		return "", fmt.Errorf("%s: %q contains a brace outside a placeholder; placeholders are %s", key, text, known())
	}
	var bad error
	filled := placeholderRE.ReplaceAllStringFunc(text, func(match string) string {
		m := placeholderRE.FindStringSubmatch(match)
		value, err := v.of(m[1], m[2])
		if err != nil && bad == nil {
			bad = fmt.Errorf("%s: %q: %s %w", key, text, match, err)
		}
		return value
	})
	return filled, bad
}

// of returns the value of a placeholder, or its first digits.
func (v Values) of(word, digits string) (string, error) {
	i := slices.IndexFunc(placeholders, func(p placeholder) bool { return p.word == word })
	if i < 0 {
		return "", fmt.Errorf("is not a placeholder; placeholders are %s", known())
	}
	value := placeholders[i].value(v)
	switch n, err := strconv.Atoi(digits); {
	case value == "":
		return "", fmt.Errorf("is unknown: %s", placeholders[i].unknown)
	case digits == "":
		return value, nil
	case word != commitWord:
		return "", fmt.Errorf("has no digits to count; only {commit:8} has")
	case err != nil || n < 1 || n > len(value):
		return "", fmt.Errorf("must ask for 1 to %d digits", len(value))
	default:
		return value[:n], nil
	}
}

// Filled returns t with the placeholders replaced in all of its texts but the licence.
func (t Target) Filled(v Values) (Target, error) {
	set, err := t.fields()
	if err != nil {
		return t, err
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		if text, ok := set[key].(string); ok && !slices.Contains(common, key) {
			if set[key], err = v.fill(key, text); err != nil {
				return t, err
			}
		}
	}
	b, err := json.Marshal(set)
	if err != nil {
		return t, err
	}
	var filled Target
	err = json.Unmarshal(b, &filled)
	return filled, err
}

// Uses reports whether a text of t has a placeholder.
func (t Target) Uses(word string) bool {
	set, err := t.fields()
	if err != nil {
		return false
	}
	for _, x := range set {
		text, _ := x.(string)
		for _, m := range placeholderRE.FindAllStringSubmatch(text, -1) {
			if m[1] == word {
				return true
			}
		}
	}
	return false
}

// epochEnv is the variable of https://reproducible-builds.org/specs/source-date-epoch.
const epochEnv = "SOURCE_DATE_EPOCH"

// errEpoch is the error for a value of SOURCE_DATE_EPOCH that is not a time.
var errEpoch = &place.RefError{Err: errors.New(epochEnv + " must be a number of seconds since 1970")}

// DateOf returns the value of the placeholder {date}: the day of SOURCE_DATE_EPOCH if that is set, or that of the source's
// commit, which the hub is asked for. It is empty for other sources.
func DateOf(ctx context.Context, s manifest.Source, o hub.Options) (string, error) {
	if text := os.Getenv(epochEnv); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if t := time.Unix(n, 0).UTC(); err == nil && n >= 0 && t.Year() <= 9999 {
			return t.Format(time.DateOnly), nil
		}
		return "", errEpoch
	}
	if s.Repo == "" || s.Hub != "" {
		return "", nil
	}
	t, err := hub.Date(ctx, hub.Ref{Repo: s.Repo, Revision: s.Revision}, o)
	if err != nil {
		return "", fmt.Errorf("{%s}: %w", DateWord, err)
	}
	return t.Format(time.DateOnly), nil
}

// fields returns the fields of t that are set, by their keys in recipes.
func (t Target) fields() (map[string]any, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	var set map[string]any
	err = json.Unmarshal(b, &set)
	return set, err
}
