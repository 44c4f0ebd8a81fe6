package recipes

import (
	"fmt"
	"regexp"
	"strings"
)

// meantRE matches the common ways to write a repository of Hugging Face: the address of its page or of git, the reference of a
// command with too few or too many slashes, or its plain name.
var meantRE = regexp.MustCompile(`^(?:(?i:(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/|git@(?:huggingface|hf)\.co:|hf:/*))?` +
	`([A-Za-z0-9_][A-Za-z0-9._-]*/[A-Za-z0-9_][A-Za-z0-9._-]*?)(?:\.git)?(?:@([^@\s]+?)|/(?:tree|blob|resolve|commit)/([^/\s]+)(?:/.*)?)?/*$`)

// MeantRepo guesses the Hugging Face repository, org/name, and the revision if one is given, meant by s. The repository is
// empty if s does not look like one.
func MeantRepo(s string) (repo, revision string) {
	m := meantRE.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil || strings.Contains(m[1], "..") || strings.HasPrefix(m[1], "datasets/") || strings.HasPrefix(m[1], "spaces/") {
		return "", ""
	}
	return m[1], m[2] + m[3]
}

// meant is the end of an error about a misspelled repository.
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
