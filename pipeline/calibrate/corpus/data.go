package corpus

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/digest"
)

// Data names one file of calibration data, a domain of its own.
type Data struct {
	Path   string  `json:"path" jsonschema_description:"File of calibration data, relative to the recipe"`
	SHA256 string  `json:"sha256,omitempty" jsonschema:"pattern=^[0-9a-f]{64}$" jsonschema_description:"SHA-256 that the file must have"`
	Format string  `json:"format,omitempty" jsonschema:"enum=json,enum=jsonl,enum=parquet,enum=text" jsonschema_description:"Format of the file; by its extension (.json .jsonl .parquet .txt) if absent"`
	Column string  `json:"column,omitempty" jsonschema_description:"Key or column that holds the text (default text) or the conversation (default messages or conversations)"`
	Chat   bool    `json:"chat,omitempty" jsonschema_description:"Rows are conversations, which are rendered with the chat template of the model"`
	Weight float64 `json:"weight,omitempty" jsonschema:"minimum=0" jsonschema_description:"Share of the windows relative to the other files; 1 if absent or 0"`
}

// Limits of files that are not read as rows, in bytes.
const (
	maxText = 1 << 30
	maxJSON = 256 << 20
)

// file is calibration data that has been opened.
type file struct {
	io.ReaderAt
	size int64
	Data // with defaults filled in, except the column of chats, which depends on the file
}

// passage is a document, or a piece of one that is too long to be in memory at once.
type passage struct {
	start    bool // the document begins here
	text     string
	messages []Message // instead of text, for a conversation
}

func (p passage) size() int64 {
	n := int64(len(p.text))
	for _, m := range p.messages {
		n += int64(len(m.Content))
	}
	return n
}

// reader calls visit with the passages of a file in order. Texts of white space only are skipped.
type reader func(ctx context.Context, f *file, visit func(passage) error) error

type fileFormat struct {
	name, extension string
	max             int64 // size of a file in bytes
	read            reader
}

// formats is sorted by name.
var formats = []fileFormat{
	{"json", ".json", maxJSON, readJSON},
	{"jsonl", ".jsonl", math.MaxInt64, readLines},
	{"parquet", ".parquet", math.MaxInt64, readParquet},
	{"text", ".txt", maxText, readText},
}

// format returns the entry of formats for d.
func (d Data) format() (fileFormat, error) {
	var names, extensions []string
	ext := strings.ToLower(filepath.Ext(d.Path))
	for _, f := range formats {
		if d.Format == f.name || d.Format == "" && ext == f.extension {
			return f, nil
		}
		names, extensions = append(names, f.name), append(extensions, f.extension)
	}
	if d.Format != "" {
		return fileFormat{}, fmt.Errorf("unknown format %q; the formats are %s", d.Format, strings.Join(names, ", "))
	}
	return fileFormat{}, fmt.Errorf("the extension %q names no known format; set format to one of %s, or use %s", ext,
		strings.Join(names, ", "), strings.Join(extensions, ", "))
}

// columns are the possible names of the column to read, best first.
func (d Data) columns() []string {
	switch {
	case d.Column != "":
		return []string{d.Column}
	case d.Chat:
		return []string{"messages", "conversations"}
	}
	return []string{"text"}
}

// Validate checks d without reading the file.
func (d Data) Validate() error {
	if d.Path == "" {
		return fmt.Errorf("calibration data without a path")
	}
	f, err := d.format()
	switch {
	case err != nil:
	case d.Weight < 0 || math.IsNaN(d.Weight) || d.Weight > maxWeight:
		err = fmt.Errorf("weight %v is not between 0 and %v", d.Weight, float64(maxWeight))
	case f.name == "text" && d.Chat:
		err = fmt.Errorf("a text holds no conversations; chat needs json, jsonl or parquet")
	case f.name == "text" && d.Column != "":
		err = fmt.Errorf("a text has no columns")
	case d.SHA256 != "":
		if !digest.IsHex(d.SHA256) {
			err = fmt.Errorf("sha256 %.80q is not 64 lower-case hex digits", d.SHA256)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.Path, err)
	}
	return nil
}

// maxWeight keeps the sum of weights finite.
const maxWeight = 1e9

// first is the one of names that has holds, or "".
func first(names []string, has func(string) bool) string {
	if i := slices.IndexFunc(names, has); i >= 0 {
		return names[i]
	}
	return ""
}
