package pipeline

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"runtime/debug"
	"sync"

	"github.com/llmexport/llmexport/internal/digest"
)

// module is the module that computes: this one, whichever program contains it.
const module = "github.com/llmexport/llmexport"

// sources is the SHA-256 of the sources, set by make build; it is the same for all systems and processors.
var sources string

// Key digests everything that the result of a stage depends on: parts and [Code], because another version of the code may
// compute other bytes from the same inputs.
func Key(stage string, parts ...any) (string, error) {
	code, err := Code()
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(append([]any{stage, code}, parts...))
	if err != nil {
		return "", err
	}
	return digest.Of(b).Hex()[:24], nil
}

// Code returns the version of the code that computes, which depends neither on the processor nor on the program that contains
// the code, so that different machines and programs share entries. A development build from unknown sources is a separate
// version, with the prefix "dev-".
func Code() (string, error) { return code() }

var code = sync.OnceValues(func() (string, error) {
	if info, ok := debug.ReadBuildInfo(); ok {
		if v := versionOf(info, sources); v != "" {
			return v, nil
		}
	}
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	_, d, err := digest.File(context.Background(), program)
	return "dev-" + d.Hex(), err
})

// versionOf returns the version of this module in a program, or "" if its sources are unknown. The version includes the release
// of Go and the build tags, which may change results. stamp is the digest of the sources, or empty.
func versionOf(info *debug.BuildInfo, stamp string) string {
	own, here := &info.Main, info.Main.Path == module // here: own is in the repository of the main module
	for _, d := range info.Deps {
		if d.Path == module && d.Replace != nil {
			own, here = d.Replace, path.Join(info.Main.Path, d.Replace.Path) == module
		} else if d.Path == module {
			own = d
		}
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	var version string
	switch revision := settings["vcs.revision"]; {
	case own.Sum != "": // a published module
		version = "release-" + own.Version + "-" + own.Sum
	case here && revision != "" && settings["vcs.modified"] == "false":
		version = "revision-" + revision
	case stamp != "":
		version = "sources-" + stamp
	default:
		return ""
	}
	version += "-" + info.GoVersion
	if tags := settings["-tags"]; tags != "" {
		version += "-" + tags
	}
	return version
}
