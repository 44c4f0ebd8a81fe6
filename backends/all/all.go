// Package all is the table of backends.
package all

import (
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/backends/generic"
)

// table lists the backends, best first.
var table = []backends.Backend{
	cpu.Backend{},
	generic.Backend{},
}

// Default is the backend to use when nobody asks for one.
func Default() backends.Backend { return table[0] }

// Lookup finds a backend by name.
func Lookup(name string) (backends.Backend, error) {
	var names []string
	for _, b := range table {
		if b.Name() == name {
			return b, nil
		}
		names = append(names, b.Name())
	}
	return nil, fmt.Errorf("unknown backend %q; known: %s", name, strings.Join(names, ", "))
}
