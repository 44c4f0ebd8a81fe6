package stage

import (
	"runtime/debug"
	"strings"
)

// release is the version that a release build sets; empty in other builds.
var release string

// Version is the version of the program without a leading v: that of the release build or of the module that go install has
// built, and otherwise "dev".
var Version = versionOf(release, debug.ReadBuildInfo)

func versionOf(release string, read func() (*debug.BuildInfo, bool)) string {
	if info, ok := read(); release == "" && ok && info.Main.Sum != "" { // only a published module has a sum
		release = info.Main.Version
	}
	if release == "" {
		return "dev"
	}
	return strings.TrimPrefix(release, "v")
}
