package publish

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

// unknownLicense is the id for a missing licence.
const unknownLicense = "unknown"

// openLicenses are the licence ids of the Hugging Face hub that let anyone redistribute a modified model, also
// commercially. Others need license_ack: research-only and non-commercial terms (cc-by-nc-*, h-research,
// intel-research, apple-amlr, fair-noncommercial-research-license, deepfloyd-if-license), those that forbid changes
// (cc-by-nd-*), the unspecific cc, and ids that the hub adds later. Company licences with terms of use, such as those
// of Llama and Gemma, are listed: they require a copy of the licence, which packages contain.
var openLicenses = []string{
	"afl-3.0", "agpl-3.0", "apache-2.0", "apple-ascl", "artistic-2.0", "bigcode-openrail-m", "bigscience-bloom-rail-1.0",
	"bigscience-openrail-m", "bsd", "bsd-2-clause", "bsd-3-clause", "bsd-3-clause-clear", "bsl-1.0", "c-uda", "cc-by-2.0",
	"cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0", "cdla-permissive-1.0",
	"cdla-permissive-2.0", "cdla-sharing-1.0", "creativeml-openrail-m", "ecl-2.0", "epl-1.0", "epl-2.0", "etalab-2.0",
	"eupl-1.1", "eupl-1.2", "gemma", "gfdl", "gpl", "gpl-2.0", "gpl-3.0", "isc", "lgpl", "lgpl-2.1", "lgpl-3.0", "lgpl-lr",
	"llama2", "llama3", "llama3.1", "llama3.2", "llama3.3", "llama4", "lppl-1.3c", "mit", "mpl-2.0", "ms-pl", "ncsa",
	"odbl", "odc-by", "ofl-1.1", "openmdw-1.0", "openrail", "openrail++", "osl-3.0", "pddl", "postgresql", "unlicense",
	"wtfpl", "zlib",
}

// NeedsAck returns the id that license_ack must have before a package of this source is published publicly, and the
// reason; both are empty if none is needed.
func NeedsAck(s manifest.Source) (id, why string) {
	id = cmp.Or(s.License, unknownLicense)
	if id == about.OtherLicense {
		id = cmp.Or(s.LicenseName, about.OtherLicense)
	}
	closed := slices.ContainsFunc(strings.Split(s.License, ", "), func(l string) bool { return !slices.Contains(openLicenses, l) })
	switch {
	case s.Access == manifest.Gated:
		return id, "the source is gated: everyone who downloads it must accept its terms"
	case s.Access == manifest.Private:
		return id, "the source is private"
	case id == unknownLicense:
		return id, "the source has no licence"
	case s.License == about.OtherLicense:
		return id, fmt.Sprintf("the source has its own licence, %s", id)
	case closed:
		return id, fmt.Sprintf("the licence %s does not let everyone redistribute the model", id)
	case s.Access == manifest.Unknown && s.Hub == manifest.ModelScope:
		return id, "ModelScope does not report whether the source is gated"
	case s.Access == manifest.Unknown:
		return id, "it is unknown whether the source is gated or private, because its hub was not queried or did not report it"
	}
	return "", ""
}

// TermsError is the error for publishing a package publicly whose licence needs an acknowledgement.
type TermsError struct {
	// Place is the public place, ID the value that license_ack needs, Got its actual value, Why the reason.
	Place, ID, Got, Why string
}

func (e *TermsError) Error() string {
	got := ""
	if e.Got != "" {
		got = fmt.Sprintf(", not %q", e.Got)
	}
	return fmt.Sprintf("%s is public and %s; if you have the right to publish the package there, set license_ack: %q%s", e.Place, e.Why, e.ID, got)
}

// CheckSource compares the terms of a source with the places to publish to. Its errors are [TermsError].
func CheckSource(s manifest.Source, places []Place) error {
	id, why := NeedsAck(s)
	if id == "" {
		return nil
	}
	for i, p := range places {
		if p.Public() && p.Target.LicenseAck != id {
			return &EntryError{i, &TermsError{Place: p.String(), ID: id, Got: p.Target.LicenseAck, Why: why}}
		}
	}
	return nil
}

// CheckTerms is [CheckSource] for the source of a package. Without a licence in the manifest, that of the model card
// counts.
func CheckTerms(p place.Package, places []Place) error {
	if !slices.ContainsFunc(places, func(p Place) bool { return p.Public() }) {
		return nil
	}
	s := p.Manifest.Source
	if s.License == "" {
		var err error
		if s.License, s.LicenseName, err = about.TermsIn(p.Dir); err != nil {
			return err
		}
	}
	return CheckSource(s, places)
}
