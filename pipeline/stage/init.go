package stage

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/llmexport/llmexport/pipeline/arch"
)

// PackageName returns the name for a package of a repository or a directory: its last element in lower case, followed by a
// suffix such as -int4 unless bits is 0.
func PackageName(model string, bits int) string {
	model = filepath.ToSlash(model)
	if abs, err := filepath.Abs(model); err == nil && strings.HasPrefix(model, ".") {
		model = filepath.ToSlash(abs)
	}
	model = strings.TrimRight(model, "/")
	model = strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '-'
	}, model)
	const most = 100 // leaves room below the limit of a recipe's name
	name = strings.Trim(name[:min(len(name), most)], "._-")
	if name == "" {
		name = "model"
	}
	switch bits {
	case 0:
		return name
	case 16:
		return name + "-f16"
	}
	return fmt.Sprintf("%s-int%d", name, bits)
}

// schemaURL is the schema of recipes that editors read, of the release that wrote the recipe.
func schemaURL() string {
	ref := "main"
	if Version != "dev" {
		ref = "v" + strings.TrimPrefix(Version, "v")
	}
	return "https://raw.githubusercontent.com/llmexport/llmexport/" + ref + "/docs/recipe.schema.json"
}

// indivisible returns the columns of the first linear layer whose rows do not divide into blocks of the given length; 0 if
// there is none.
func indivisible(d *arch.Decoder, block int) int {
	found := 0
	d.Linears(func(_ string, l *arch.Linear) {
		if found == 0 && l.Weight.Cols%block != 0 {
			found = l.Weight.Cols
		}
	})
	return found
}

var plainWord = regexp.MustCompile(`^(\.{1,2}/)*[A-Za-z][A-Za-z0-9_./-]*$`)

// word quotes a string for YAML if necessary.
func word(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
	default:
		if plainWord.MatchString(s) {
			return s
		}
	}
	q, err := json.Marshal(s)
	if err != nil {
		panic("internal error: " + err.Error()) // strings always marshal
	}
	return string(q)
}
