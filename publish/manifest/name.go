package manifest

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	maxName    = 1024 // bytes of a whole name
	maxElement = 255  // bytes of one element, the limit of the usual file systems
)

// CheckName returns an error, tensor.ErrCorrupt, unless name is allowed in a package: relative, separated by forward slashes,
// below the package, and the same file on Linux, macOS and Windows. The result is the same on every system.
func CheckName(name string) error {
	bad := func(why string) error {
		return fmt.Errorf("file name %.80q %s: %w", name, why, tensor.ErrCorrupt)
	}
	if name == "" || len(name) > maxName {
		return bad("is empty or too long")
	}
	if !utf8.ValidString(name) {
		return bad("is not UTF-8")
	}
	if i := strings.IndexFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune(`\:<>"|?*`, r) }); i >= 0 {
		return bad("has a character that some systems do not allow")
	}
	for e := range strings.SplitSeq(name, "/") {
		switch {
		case e == "" || e == "." || e == "..":
			return bad("is not a plain relative path")
		case len(e) > maxElement:
			return bad("has an element that is too long")
		case strings.HasSuffix(e, ".") || strings.HasSuffix(e, " "):
			return bad("has an element that ends in a dot or a space")
		case strings.EqualFold(e, ".git") || strings.EqualFold(e, "git~1"):
			return bad("is git's own, whose settings name programs to run")
		case reserved(e):
			return bad("is a device on Windows")
		}
	}
	return nil
}

var devices = []string{"con", "prn", "aux", "nul", "conin$", "conout$"}

// reserved reports whether Windows treats a path element as a device. Windows ignores extensions and spaces
// before them.
func reserved(element string) bool {
	base, _, _ := strings.Cut(element, ".")
	base = strings.ToLower(strings.TrimRight(base, " "))
	if slices.Contains(devices, base) {
		return true
	}
	rest, ok := strings.CutPrefix(base, "com")
	if !ok {
		rest, ok = strings.CutPrefix(base, "lpt")
	}
	return ok && utf8.RuneCountInString(rest) == 1 && strings.ContainsAny(rest, "0123456789¹²³")
}
