package parity

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
)

// SHA256 is that of the lines in corpus.jsonl.gz, uncompressed.
const SHA256 = "e2b57f40a7be6a9a9b1bd0ad8ee3777af3d91d91e24847456e24db717a809da0"

//go:embed corpus.jsonl.gz
var packed []byte

// String is one string of the corpus.
type String struct {
	// Class is the kind of the string, such as "emoji" or "whitespace". In "script-garay" or "text-de" what follows the
	// hyphen is the script or the language; see Group.
	Class string
	// Text may hold bytes that are not UTF-8 if Hard is set.
	Text string
	// Hard tells the two halves apart.
	Hard bool
}

// Group is the class without what follows its hyphen.
func (s String) Group() string {
	group, _, _ := strings.Cut(s.Class, "-")
	return group
}

// line is a String in the file.
type line struct {
	Class  string  `json:"class"`
	Hard   bool    `json:"hard"`
	Text   *string `json:"text,omitempty"`
	Base64 []byte  `json:"base64,omitempty"`
}

// Corpus returns all strings in the order of the file; the caller must not change them. No two are equal and none is
// empty.
var Corpus = sync.OnceValue(func() []String {
	b, err := Lines()
	if err != nil {
		panic("internal error: " + err.Error())
	}
	var list []String
	for d := json.NewDecoder(bufio.NewReader(bytes.NewReader(b))); ; {
		var l line
		switch err := d.Decode(&l); {
		case err == io.EOF:
			return list
		case err != nil:
			panic("internal error: corpus.jsonl.gz: " + err.Error())
		}
		s := String{Class: l.Class, Hard: l.Hard, Text: string(l.Base64)}
		if l.Text != nil {
			s.Text = *l.Text
		}
		list = append(list, s)
	}
})

// Lines returns the file uncompressed, for programs that read it themselves.
func Lines() ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("corpus.jsonl.gz: %w", err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("corpus.jsonl.gz: %w", err)
	}
	return b, nil
}
