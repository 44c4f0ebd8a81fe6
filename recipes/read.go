package recipes

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	goccy "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/invopop/yaml"
)

// Bounds on a document, far above any recipe, that keep hostile input cheap.
const (
	maxBytes  = 1 << 20
	maxTokens = 50_000 // invopop/yaml compares the keys of a mapping pairwise
	maxDepth  = 64
	maxColumn = 1024 // of block structure, where each level of nesting takes a column
)

// read parses one YAML document. goccy/go-yaml provides the positions, invopop/yaml reads the same
// text a second time, and a document that they interpret differently is rejected.
func read(filename string, data []byte) (*node, error) {
	src := &source{name: filename}
	whole := position{src: src}
	if len(data) > maxBytes {
		return nil, whole.errorf("", "the file is larger than 1 MiB")
	}
	// Editors on Windows write byte-order marks and CRLF.
	data = bytes.ReplaceAll(bytes.TrimPrefix(data, []byte("\ufeff")), []byte("\r\n"), []byte("\n"))
	src.lines = strings.Split(string(data), "\n")
	n, err := parse(src, string(data), maxDepth)
	if err != nil {
		return nil, err
	}
	if n == nil {
		return nil, whole.errorf("", "the file is empty; it must begin with \"version: 1\"")
	}
	return n, nil
}

// parse reads a text with a limited depth; the result is nil if it holds no value.
func parse(src *source, data string, depth int) (*node, error) {
	if err := checkText(src, data); err != nil {
		return nil, err
	}
	tokens, err := attempt(func() (token.Tokens, error) { return lexer.Tokenize(data), nil })
	if err != nil {
		return nil, position{src: src}.errorf("", "%v", err)
	}
	if err := checkTokens(src, tokens); err != nil {
		return nil, err
	}
	file, err := attempt(func() (*ast.File, error) { return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey()) })
	if err != nil {
		if e, ok := errors.AsType[goccy.Error](err); ok && e.GetToken() != nil {
			return nil, syntaxError(place(src, e.GetToken()), e.GetMessage())
		}
		return nil, position{src: src}.errorf("", "%v", err)
	}
	var n *node
	for i, doc := range file.Docs {
		if i > 0 {
			at := position{src: src}
			if doc.Start != nil {
				at = place(src, doc.Start)
			}
			return nil, at.errorf("", "a file holds one document, and a second one begins here")
		}
		if _, comment := doc.Body.(*ast.CommentGroupNode); doc.Body == nil || comment {
			continue
		}
		if n, err = convert(src, doc.Body, start(src, doc.Body, position{src, 1, 1}), "", depth); err != nil {
			return nil, err
		}
	}
	return n, confirm(src, data, n)
}

// attempt calls a YAML library and converts a panic to an error. Fuzzing has found no panic in the versions in use,
// but there are reports of others (goccy/go-yaml issues 540 and 890).
func attempt[T any](f func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("malformed YAML")
		}
	}()
	return f()
}

// checkText rejects characters that YAML does not allow or that readers skip or translate differently.
func checkText(src *source, data string) error {
	for i, line := range strings.Split(data, "\n") {
		column := 0
		for j, r := range line {
			column++
			at := position{src, i + 1, column}
			switch {
			case r == utf8.RuneError && !strings.HasPrefix(line[j:], string(utf8.RuneError)):
				return at.errorf("", "this is not UTF-8 text: byte 0x%02X", line[j])
			case r < ' ' && r != '\t', r >= 0x7f && r < 0xa0, r == 0x2028, r == 0x2029, r == 0xfeff, r == 0xfffe, r == 0xffff:
				return at.errorf("", "control character %U; write it as an escape in a quoted string", r)
			}
		}
	}
	return nil
}

// checkTokens rejects constructs that recipes do not use, before the recursive parser runs.
func checkTokens(src *source, tokens token.Tokens) error {
	if len(tokens) > maxTokens {
		return position{src: src}.errorf("", "the file has more than %d YAML tokens", maxTokens)
	}
	flow := 0
	for _, tk := range tokens {
		at := place(src, tk)
		switch tk.Type {
		case token.InvalidType:
			return syntaxError(at, tk.Error)
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return at.errorf("", "anchors, aliases and merge keys are not used in recipes; put a value that begins with & or * in quotes")
		case token.TagType:
			return at.errorf("", "tags are not used in recipes; put a value that begins with ! in quotes")
		case token.DirectiveType:
			return at.errorf("", "YAML directives are not used in recipes")
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		}
		if flow < 0 {
			return at.errorf("", "%s closes nothing", tk.Value)
		}
		if flow > maxDepth || flow == 0 && tk.Indicator == token.BlockStructureIndicator && tk.Position.Column > maxColumn {
			return at.errorf("", "nested too deeply; at most %d levels are allowed", maxDepth)
		}
	}
	return nil
}

func syntaxError(at position, msg string) error {
	if strings.Contains(msg, "'\t'") {
		msg = "YAML is indented with spaces, not with tabs"
	}
	return at.errorf("", "%s", msg)
}

func place(src *source, tk *token.Token) position {
	return position{src, tk.Position.Line, tk.Position.Column}
}

// start is where a value without a key begins. The token of a block mapping is a colon, so there it is
// the first key.
func start(src *source, from ast.Node, otherwise position) position {
	switch from := from.(type) {
	case nil, *ast.NullNode:
		return otherwise
	case *ast.MappingValueNode:
		return place(src, from.Key.GetToken())
	case *ast.MappingNode:
		if len(from.Values) > 0 && !from.IsFlowStyle {
			return place(src, from.Values[0].Key.GetToken())
		}
	}
	return place(src, from.GetToken())
}

// numberRE matches a number of JSON. The other spellings of YAML are rejected: 010 is eight to one reader and
// ten to another.
var numberRE = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// convert converts a syntax tree. Scalars, lists and flow mappings have their own positions; a block
// mapping and an omitted value get the given position, that of their key.
func convert(src *source, from ast.Node, at position, path string, depth int) (*node, error) {
	n := &node{at: at}
	if from == nil {
		return n, nil
	}
	tk := from.GetToken()
	if from.Type() != ast.NullType && from.Type() != ast.MappingType && from.Type() != ast.MappingValueType {
		n.at = place(src, tk)
	}
	if depth == 0 {
		return nil, n.errorf("", "nested too deeply; at most %d levels are allowed", maxDepth)
	}
	switch from := from.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		n.kind, n.scalar = boolean, strconv.FormatBool(from.Value)
	case *ast.StringNode:
		n.kind, n.scalar = text, from.Value
		if tk.Type == token.StringType && numberRE.MatchString(from.Value) {
			n.kind = number // such as 1e-5, which needs a point for goccy/go-yaml
		}
	case *ast.LiteralNode:
		n.kind, n.scalar = text, from.Value.Value
	case *ast.IntegerNode, *ast.FloatNode:
		n.kind, n.scalar = number, tk.Value
		if _, err := strconv.ParseFloat(tk.Value, 64); err != nil || !numberRE.MatchString(tk.Value) {
			return nil, n.errorf(path, "must be a plain decimal number, not %s; put it in quotes if it is a string", shorten(tk.Value))
		}
	case *ast.InfinityNode, *ast.NanNode:
		return nil, n.errorf(path, "must be a finite number, not %s", tk.Value)
	case *ast.SequenceNode:
		n.kind = sequence
		for i, item := range from.Values {
			v, err := convert(src, item, start(src, item, n.at), joinIndex(path, i), depth-1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, v)
		}
	case *ast.MappingNode:
		n.kind = mapping
		if from.IsFlowStyle {
			n.at = place(src, tk)
		}
		return n, convertEntries(n, src, from.Values, path, depth)
	case *ast.MappingValueNode:
		n.kind = mapping
		return n, convertEntries(n, src, []*ast.MappingValueNode{from}, path, depth)
	default:
		return nil, n.errorf(path, "this YAML is not used in recipes: %s", strings.ToLower(from.Type().YAMLName()))
	}
	return n, nil
}

func convertEntries(n *node, src *source, values []*ast.MappingValueNode, path string, depth int) error {
	seen := make(map[string]int, len(values))
	for _, v := range values {
		tk := v.Key.GetToken()
		at := place(src, tk)
		key, ok := v.Key.(*ast.StringNode)
		if !ok {
			return at.errorf(path, "a key must be a word, not %s; put it in quotes", shorten(tk.Value))
		}
		inside := joinKey(path, key.Value)
		if line := seen[key.Value]; line > 0 {
			return at.errorf(inside, "appears twice; the first is on line %d", line)
		}
		seen[key.Value] = at.line
		value, err := convert(src, v.Value, at, inside, depth-1)
		if err != nil {
			return err
		}
		n.entries = append(n.entries, entry{key.Value, at, value})
	}
	return nil
}

var yamlLineRE = regexp.MustCompile(`^(?:error converting YAML to JSON: )?yaml: (?:line (\d+): )?`)

// confirm reads the text once more and compares.
func confirm(src *source, data string, n *node) error {
	j, err := attempt(func() ([]byte, error) { return yaml.YAMLToJSON([]byte(data)) })
	if err != nil {
		at, msg := position{src: src}, err.Error()
		if m := yamlLineRE.FindStringSubmatch(msg); m != nil {
			at.line, _ = strconv.Atoi(m[1])
			msg = msg[len(m[0]):]
		}
		return at.errorf("", "%s", msg)
	}
	var second any
	d := json.NewDecoder(bytes.NewReader(j))
	d.UseNumber()
	if err := d.Decode(&second); err != nil {
		return position{src: src}.errorf("", "%v", err)
	}
	if n == nil {
		n = &node{at: position{src: src}}
	}
	if at, path := n.differs(second, ""); at != nil {
		return at.errorf(path, "is interpreted differently by different YAML readers; put it in quotes")
	}
	return nil
}

// differs returns the first value that differs from that of the second reader, or nil.
func (n *node) differs(second any, path string) (*node, string) {
	same := false
	switch n.kind {
	case null:
		same = second == nil
	case boolean:
		b, ok := second.(bool)
		same = ok && strconv.FormatBool(b) == n.scalar
	case number:
		s, ok := second.(json.Number)
		a, _ := strconv.ParseFloat(n.scalar, 64)
		b, err := s.Float64()
		same = ok && err == nil && a == b
	case text:
		s, ok := second.(string)
		same = ok && s == n.scalar
	case sequence:
		list, ok := second.([]any)
		if same = ok && len(list) == len(n.items); same {
			for i, item := range n.items {
				if at, p := item.differs(list[i], joinIndex(path, i)); at != nil {
					return at, p
				}
			}
		}
	case mapping:
		m, ok := second.(map[string]any)
		if same = ok && len(m) == len(n.entries); same {
			for _, e := range n.entries {
				v, ok := m[e.key]
				if !ok {
					return n, path
				}
				if at, p := e.value.differs(v, joinKey(path, e.key)); at != nil {
					return at, p
				}
			}
		}
	}
	if !same {
		return n, path
	}
	return nil, ""
}
