package recipes

import (
	"fmt"
	"regexp"
	"strings"
)

// meantRE takes apart what people write for a repository of Hugging Face: the address of its page, that of git, the
// reference of a command with slashes too few or too many, or its plain name.
var meantRE = regexp.MustCompile(`^(?:(?i:(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/|git@(?:huggingface|hf)\.co:|hf:/*))?` +
	`([A-Za-z0-9_][A-Za-z0-9._-]*/[A-Za-z0-9_][A-Za-z0-9._-]*?)(?:\.git)?(?:@([^@\s]+?)|/(?:tree|blob|resolve|commit)/([^/\s]+)(?:/.*)?)?/*$`)

// MeantRepo is the repository of Hugging Face, org/name, and its revision if one is given, that somebody means who
// wrote s. The repository is empty when s is nothing of the kind.
func MeantRepo(s string) (repo, revision string) {
	m := meantRE.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil || strings.Contains(m[1], "..") || strings.HasPrefix(m[1], "datasets/") || strings.HasPrefix(m[1], "spaces/") {
		return "", ""
	}
	return m[1], m[2] + m[3]
}

// meant is the end of an error about a model's repository that is misspelled.
func meant(s string) string {
	switch repo, revision := MeantRepo(s); {
	case repo == "" || repo == s:
		return ""
	case revision == "":
		return fmt.Sprintf("; did you mean %s?", repo)
	default:
		return fmt.Sprintf("; did you mean {repo: %s, revision: %s}?", repo, shorten(revision))
	}
}
