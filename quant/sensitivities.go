package quant

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// SensitivitiesVersion is the format that this package reads and writes.
const SensitivitiesVersion = 1

// Sensitivities hold the cost of every way to store every matrix of a model. They are the slow measurement of an
// allocation, and serve any budget.
type Sensitivities struct {
	// Source is the digest of the checkpoint, "sha256:" and 64 lower-case hexadecimal digits.
	Source string
	// Text is the text on which divergences were predicted.
	Text  SensitivityText
	Items []Item
}

// SensitivityText identifies a text.
type SensitivityText struct {
	Name string
	// Digest is the digest of its bytes, in the form of Source.
	Digest string
	Tokens int64
}

// Bounds of a file of sensitivities: 100,000 matrices with 40 options fit.
const (
	maxSensitivities = 512 << 20
	maxName          = 1024
)

// The file format is separate from Item, so that Item can change.
type (
	sensitivitiesFile struct {
		Version int        `json:"sensitivities"`
		Source  string     `json:"source"`
		Text    textFile   `json:"text"`
		Items   []itemFile `json:"items"`
	}
	textFile struct {
		Name   string `json:"name"`
		Digest string `json:"digest"`
		Tokens int64  `json:"tokens"`
	}
	itemFile struct {
		Members []string     `json:"members"`
		Options []optionFile `json:"options"`
	}
	optionFile struct {
		Spec  string  `json:"spec"`
		Bytes int64   `json:"bytes"`
		KL    float64 `json:"kl"`
		RAM   int64   `json:"ram"`
	}
)

// ParseSensitivities accepts only the output of Marshal: another version is tensor.ErrUnsupported; any other deviation,
// including another spelling or order, is tensor.ErrCorrupt.
func ParseSensitivities(data []byte) (*Sensitivities, error) {
	if len(data) > maxSensitivities {
		return nil, fmt.Errorf("sensitivities of more than %d bytes: %w", maxSensitivities, tensor.ErrCorrupt)
	}
	var head struct {
		Version *int `json:"sensitivities"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("%w: %w", err, tensor.ErrCorrupt)
	}
	if head.Version == nil {
		return nil, fmt.Errorf("no field %q, so this is not a sensitivities file: %w", "sensitivities", tensor.ErrCorrupt)
	}
	if *head.Version != SensitivitiesVersion {
		return nil, fmt.Errorf("sensitivities have version %d, but this program reads version %d: %w", *head.Version, SensitivitiesVersion, tensor.ErrUnsupported)
	}
	var f sensitivitiesFile
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("%w: %w", err, tensor.ErrCorrupt)
	}
	s := &Sensitivities{Source: f.Source, Text: SensitivityText(f.Text)}
	for _, it := range f.Items {
		item := Item{Members: it.Members}
		for _, o := range it.Options {
			spec, err := ParseSpec(o.Spec)
			if err != nil {
				return nil, err
			}
			item.Options = append(item.Options, Option{spec, o.Bytes, o.KL, o.RAM})
		}
		s.Items = append(s.Items, item)
	}
	want, err := s.Marshal()
	if err != nil {
		return nil, err
	}
	// The decoder forgives repeated names, names in other case, text after the value. This rejects all of them.
	if !bytes.Equal(data, want) {
		return nil, fmt.Errorf("sensitivities are not in their canonical form: %w", tensor.ErrCorrupt)
	}
	return s, nil
}

// Marshal returns the canonical form of the sensitivities: items sorted by their first member, options by spec. It fails,
// with tensor.ErrCorrupt, on values that [Allocate] rejects, names that are empty or not printable, and duplicate specs of
// an item. The receiver is not changed.
func (s *Sensitivities) Marshal() ([]byte, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	f := sensitivitiesFile{Version: SensitivitiesVersion, Source: s.Source, Text: textFile(s.Text)}
	items := slices.Clone(s.Items)
	slices.SortFunc(items, func(a, b Item) int { return cmp.Compare(a.Members[0], b.Members[0]) })
	for _, it := range items {
		x := itemFile{Members: it.Members}
		options := slices.Clone(it.Options)
		slices.SortFunc(options, func(a, b Option) int { return compareSpecs(a.Spec, b.Spec) })
		for i, o := range options {
			if i > 0 && o.Spec == options[i-1].Spec {
				return nil, fmt.Errorf("%q has %v twice: %w", it.Members[0], o.Spec, tensor.ErrCorrupt)
			}
			// A negative zero is a zero, in one spelling.
			x.Options = append(x.Options, optionFile{o.Spec.String(), o.Bytes, math.Abs(o.KL), o.RAM})
		}
		f.Items = append(f.Items, x)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(f); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (s *Sensitivities) validate() error {
	for _, d := range []string{s.Source, s.Text.Digest} {
		if _, err := digest.Parse(d); err != nil {
			return err
		}
	}
	if s.Text.Tokens <= 0 {
		return fmt.Errorf("text has %d tokens: %w", s.Text.Tokens, tensor.ErrCorrupt)
	}
	names := []string{s.Text.Name}
	for _, it := range s.Items {
		names = append(names, it.Members...)
		for _, o := range it.Options {
			if err := o.Spec.Validate(); err != nil {
				return fmt.Errorf("%w: %w", err, tensor.ErrCorrupt)
			}
		}
	}
	for _, n := range names {
		if n == "" || len(n) > maxName || !utf8.ValidString(n) || !printable(n) {
			return fmt.Errorf("name %.80q is not a printable one of 1 to %d bytes: %w", n, maxName, tensor.ErrCorrupt)
		}
	}
	return checkItems(s.Items)
}

// printable excludes characters that encoding/json escapes in its own way.
func printable(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
