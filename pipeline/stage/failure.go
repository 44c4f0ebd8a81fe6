package stage

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

// FailedError lists the checks that a package failed; such a run has an exit code of its own.
type FailedError struct {
	Checks []manifest.Check
	// Dir holds the failed package, Source the checkpoint if its weights were kept.
	Dir, Source string
	// Hint is what may help with all of them, or empty.
	Hint string
}

func (e *FailedError) Error() string {
	var names, details []string
	for _, c := range e.Checks {
		names, details = append(names, c.Name), append(details, c.Name+": "+c.Detail)
	}
	text := fmt.Sprintf("%s failed, nothing was published\n  %s\nthe package is in %s: `llmexport verify %s",
		strings.Join(names, ", "), strings.Join(details, "\n  "), e.Dir, shellWord(e.Dir))
	if e.Source != "" {
		text += " --source " + shellWord(e.Source)
	}
	return text + fmt.Sprintf("` checks it again, `llmexport publish %s PLACE` publishes it unchanged, marked as not verified; "+
		"a run with other limits reuses everything else", shellWord(e.Dir))
}

// failure is a [FailedError] if the package of a source has failed a check. If its weights or its divergence have, hint may help.
func failure(p place.Package, src *source.Source, hint string) error {
	failed := &FailedError{Dir: p.Dir}
	if src.Heads == nil {
		failed.Source = src.Dir
	}
	for _, c := range p.Manifest.Checks {
		if c.Failed() {
			failed.Checks = append(failed.Checks, c)
			if c.Name == "weights" || c.Name == "perplexity" || c.Name == "kl" {
				failed.Hint = hint
			}
		}
	}
	if len(failed.Checks) == 0 {
		return nil
	}
	return failed
}

// shellWord quotes a word that a shell would split or expand.
func shellWord(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("/._-+:@%=,", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}
