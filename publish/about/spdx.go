package about

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// spdx lists the licences that model cards on hubs identify by the SPDX identifier in lower case; others are names. The
// list is that of https://huggingface.co/docs/hub/repositories-licenses.
var spdx = []string{
	"AFL-3.0", "AGPL-3.0", "Apache-2.0", "Artistic-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-Clear", "BSL-1.0",
	"C-UDA-1.0", "CC-BY-2.0", "CC-BY-2.5", "CC-BY-3.0", "CC-BY-4.0", "CC-BY-NC-2.0", "CC-BY-NC-3.0", "CC-BY-NC-4.0",
	"CC-BY-NC-ND-3.0", "CC-BY-NC-ND-4.0", "CC-BY-NC-SA-2.0", "CC-BY-NC-SA-3.0", "CC-BY-NC-SA-4.0", "CC-BY-ND-4.0",
	"CC-BY-SA-3.0", "CC-BY-SA-4.0", "CC0-1.0", "CDLA-Permissive-1.0", "CDLA-Permissive-2.0", "CDLA-Sharing-1.0", "ECL-2.0",
	"EPL-1.0", "EPL-2.0", "etalab-2.0", "EUPL-1.1", "EUPL-1.2", "GPL-2.0", "GPL-3.0", "ISC", "LGPL-2.1", "LGPL-3.0",
	"LPPL-1.3c", "MIT", "MPL-2.0", "MS-PL", "NCSA", "OFL-1.1", "OSL-3.0", "PostgreSQL", "Unlicense", "WTFPL", "Zlib",
}

// bomLicenses returns the licence from the front matter of a card; nil if there is none that can be read.
func bomLicenses(card []byte) []bomLicenseChoice {
	fm, err := parseFrontMatter(card)
	if err != nil || fm.check() != nil {
		return nil
	}
	first := func(key string) string {
		values, _ := fm.list(key)
		return strings.TrimSpace(append(values, "")[0])
	}
	ids, _ := fm.list("license")
	var list []bomLicenseChoice
	for _, id := range ids {
		if id = strings.TrimSpace(id); id == "" {
			continue
		}
		l := bomLicense{Acknowledgement: "declared"}
		if i := slices.IndexFunc(spdx, func(s string) bool { return strings.EqualFold(s, id) }); i >= 0 {
			l.ID = spdx[i]
		} else {
			l.Name = cmp.Or(first("license_name"), id)
			l.URL = webAddress(first("license_link"))
		}
		list = append(list, bomLicenseChoice{l})
	}
	return list
}

// webAddress returns s without user and password if it is a web address.
func webAddress(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return ""
	}
	return u.String()
}
