package arch

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
)

// libkeysText is what libkeys.py beside it recorded of the library transformers.
//
//go:embed libkeys.txt
var libkeysText string

// library is what transformers knows of the keys of config.json.
type library struct {
	version string
	// reads holds the keys that the library reads for a model of whatever type, and those that a configuration declares.
	reads map[string]bool
	types map[string]*class
}

// class is the configuration of a model type.
type class struct {
	// positions is max_position_embeddings where the file has none; 0 if the class does not say.
	positions int
	// notNull holds the keys whose value must not be null.
	notNull map[string]bool
}

// transformers reads libkeys.txt once.
var transformers = sync.OnceValue(func() *library {
	l := &library{reads: map[string]bool{}, types: map[string]*class{}}
	for line := range strings.Lines(libkeysText) {
		words := strings.Fields(line)
		switch words[0] {
		case "transformers":
			l.version = words[1]
		case "read":
			l.reads = set(words[1:])
		case "type":
			c := &class{notNull: set(words[3:])}
			c.positions, _ = strconv.Atoi(words[2]) // "-" is none
			l.types[words[1]] = c
		}
	}
	return l
})

func set(words []string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}
