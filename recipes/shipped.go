package recipes

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.yaml
var shipped embed.FS

// Shipped lists the names of the recipes in the binary, sorted, without their extension.
func Shipped() []string {
	files, err := shipped.ReadDir(".")
	if err != nil {
		panic("internal error: embedded recipes: " + err.Error())
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(f.Name(), ".yaml")
	}
	return names
}

// ReadShipped returns the text of a recipe in the binary. The error for an unknown name lists the known ones.
func ReadShipped(name string) ([]byte, error) {
	data, err := shipped.ReadFile(name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("no shipped recipe is called %s; there are %s", shorten(name), strings.Join(Shipped(), ", "))
	}
	return data, nil
}
