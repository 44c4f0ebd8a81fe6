package about

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// OtherLicense is the id of licences without an id of their own; the name is a separate field.
const OtherLicense = "other"

// maxLicenseID bounds the name of a licence in bytes; longer ones are whole texts.
const maxLicenseID = 128

// Terms reads the licence from a checkpoint's README.md: the id, and the name of one whose id is "other". Both are
// empty if there is none that can be read.
func Terms(card []byte) (license, name string) {
	fm, err := parseFrontMatter(card)
	if err != nil {
		return "", ""
	}
	fm = fm.without("model-index")
	read := func(key string) string {
		values, ok := fm.list(key)
		if !ok || len(values) == 0 {
			return ""
		}
		slices.Sort(values)
		text := strings.Join(slices.Compact(values), ", ")
		if len(text) > maxLicenseID || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return ""
		}
		return text
	}
	license = strings.ToLower(read("license"))
	if license == OtherLicense {
		name = read("license_name")
	}
	return license, name
}

// TermsIn is [Terms] of the card in a directory; both are empty if there is none.
func TermsIn(dir string) (license, name string, err error) {
	f, err := os.Open(filepath.Join(dir, CardName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	card, err := io.ReadAll(io.LimitReader(f, maxFrontMatter))
	if err := errors.Join(err, f.Close()); err != nil {
		return "", "", err
	}
	license, name = Terms(card)
	return license, name, nil
}
