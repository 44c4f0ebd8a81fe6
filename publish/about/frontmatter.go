package about

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Bounds of a source card's front matter. Cards of embedding models have a megabyte of results in model-index, which is
// cut out before parsing; the longest remaining field is a licence in a prompt.
const (
	maxFrontMatter = 4 << 20
	maxParsed      = 64 << 10
	maxNesting     = 64 // the parser takes quadratic time for deep nesting
	maxTags        = 200
)

// field is a top-level entry of a front matter, with its original lines.
type field struct {
	key, text string
}

// frontMatter is the head of a model card in order.
type frontMatter []field

var (
	topKey = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_.-]*)[ ]*:([ ]|$)`)
	// markers matches indicators that open one level each on a single line, as in "- - - a".
	markers = regexp.MustCompile(`([-?:][ ]+){16}`)
	// bare matches plain scalars that YAML 1.1 and 1.2 both read as strings.
	bare = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)
)

// parseFrontMatter splits the front matter of a model card. Entries keep their bytes, because other YAML readers could
// interpret re-encoded ones differently: the language "no" is a boolean to some.
func parseFrontMatter(card []byte) (frontMatter, error) {
	text, err := cutFrontMatter(card)
	if err != nil {
		return nil, err
	}
	var fm frontMatter
	start, at := 0, 0 // offsets of the last entry and of the line
	for line := range strings.Lines(text) {
		trimmed := strings.TrimRight(line, "\n")
		m := topKey.FindStringSubmatch(trimmed)
		switch {
		case m != nil:
			fm = append(fm, field{key: m[1]})
			start = at
		case trimmed != "" && !strings.ContainsRune(" \t#", rune(trimmed[0])) && trimmed != "-" && !strings.HasPrefix(trimmed, "- "):
			return nil, fmt.Errorf("line %.60q does not start an entry", trimmed)
		case len(fm) == 0 && strings.TrimSpace(trimmed) != "" && trimmed[0] != '#':
			return nil, fmt.Errorf("line %.60q comes before the first entry", trimmed)
		}
		at += len(line)
		if len(fm) > 0 {
			fm[len(fm)-1].text = text[start:at]
		}
	}
	return fm, nil
}

// cutFrontMatter returns the text between the two lines of three dashes, with LF line ends.
func cutFrontMatter(card []byte) (string, error) {
	card = bytes.TrimPrefix(card, []byte("\ufeff"))
	if len(card) > maxFrontMatter {
		card = card[:maxFrontMatter]
	}
	text := strings.ReplaceAll(string(card), "\r\n", "\n")
	text, ok := strings.CutPrefix(text, "---\n")
	if !ok {
		return "", errors.New("it is missing")
	}
	if strings.HasPrefix(text, "---\n") || text == "---" {
		return "", nil
	}
	text, _, ok = strings.Cut(text, "\n---\n")
	if !ok {
		text, ok = strings.CutSuffix(text, "\n---")
	}
	if !ok {
		return "", errors.New("it has no end")
	}
	if !utf8.ValidString(text) {
		return "", errors.New("it is not UTF-8")
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 && r != '\n' && r != '\t' || r == 0x7f }) {
		return "", errors.New("it contains control characters")
	}
	return text + "\n", nil
}

func (fm frontMatter) String() string {
	var b strings.Builder
	for _, f := range fm {
		b.WriteString(f.text)
	}
	return b.String()
}

// check parses the rest of a front matter and requires that YAML finds the same entries as the split by lines, and
// nothing that refers from one entry to another.
func (fm frontMatter) check() (err error) {
	// The parser is third-party and the text untrusted.
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("the YAML parser crashed on it")
		}
	}()
	text := fm.String()
	if len(text) > maxParsed {
		return fmt.Errorf("it has %d bytes, the limit is %d", len(text), maxParsed)
	}
	if nesting(text) > maxNesting || markers.MatchString(text) {
		return errors.New("it is nested too deeply")
	}
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		return errors.New(firstLine(err.Error()))
	}
	if len(fm) == 0 {
		return nil
	}
	if len(file.Docs) != 1 {
		return errors.New("it is more than one document")
	}
	body, ok := file.Docs[0].Body.(*ast.MappingNode)
	if !ok {
		return errors.New("it is not a mapping")
	}
	for _, t := range []ast.NodeType{ast.AnchorType, ast.AliasType, ast.MergeKeyType} {
		if len(ast.Filter(t, body)) > 0 {
			return errors.New("it has anchors or aliases")
		}
	}
	var keys []string
	for _, v := range body.Values {
		keys = append(keys, v.Key.String())
	}
	if !slices.EqualFunc(fm, keys, func(f field, key string) bool { return f.key == key }) {
		return errors.New("its entries do not start at the line's first column")
	}
	return nil
}

// nesting returns an upper bound for the depth of brackets, counting those inside strings.
func nesting(text string) int {
	depth, most := 0, 0
	for _, c := range []byte(text) {
		switch c {
		case '[', '{':
			depth++
			most = max(most, depth)
		case ']', '}':
			depth--
		}
	}
	return most
}

// without removes entries.
func (fm frontMatter) without(keys ...string) frontMatter {
	return slices.DeleteFunc(slices.Clone(fm), func(f field) bool { return slices.Contains(keys, f.key) })
}

// find returns the text of an entry.
func (fm frontMatter) find(key string) (string, bool) {
	i := slices.IndexFunc(fm, func(f field) bool { return f.key == key })
	if i < 0 {
		return "", false
	}
	return fm[i].text, true
}

// set replaces an entry in place, or appends it.
func (fm frontMatter) set(key, text string) frontMatter {
	i := slices.IndexFunc(fm, func(f field) bool { return f.key == key })
	if i < 0 {
		return append(fm, field{key, text})
	}
	fm = slices.Clone(fm)
	fm[i].text = text
	return fm
}

// list reads an entry that is a string or a list of strings; otherwise, ok is false.
func (fm frontMatter) list(key string) (values []string, ok bool) {
	text, found := fm.find(key)
	if !found {
		return nil, true
	}
	defer func() {
		if recover() != nil {
			values, ok = nil, false
		}
	}()
	var v map[string]any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return nil, false
	}
	switch v := v[key].(type) {
	case nil:
		return nil, true
	case string:
		return []string{v}, true
	case []any:
		for _, e := range v {
			s, isString := e.(string)
			if !isString || len(values) == maxTags {
				return values, false
			}
			values = append(values, s)
		}
		return values, true
	}
	return nil, false
}

func yamlList(key string, values []string) string {
	var b strings.Builder
	b.WriteString(key + ":\n")
	for _, v := range values {
		b.WriteString("- " + yamlString(v) + "\n")
	}
	return b.String()
}

// yamlString quotes strings that some YAML reader could interpret as something else.
func yamlString(s string) string {
	words := []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
	if bare.MatchString(s) && !slices.Contains(words, strings.ToLower(s)) {
		return s
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic("internal error: " + err.Error()) // strings can always be encoded
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}
