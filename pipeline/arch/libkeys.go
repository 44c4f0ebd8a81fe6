package arch

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
)

// libkeysText is the output of libkeys.py, next to it, for the library transformers.
//
//go:embed libkeys.txt
var libkeysText string

// library describes how transformers reads the keys of config.json.
type library struct {
	version string
	// reads has the keys that the library reads for a model of any type, and those that a configuration declares.
	reads map[string]bool
	types map[string]*class
}

// class is the configuration of a model type.
type class struct {
	// positions is the default of max_position_embeddings; 0 if the class has none.
	positions int
	// notNull has the keys whose value must not be null.
	notNull map[string]bool
}

// transformers parses libkeys.txt once.
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
