// Package manifest reads and writes manifest.json, the listing of a published package: every file with
// its size and SHA-256, the source of the weights, the recipe, the measurements and the engine that runs it.
//
// [Open] reads the manifest of a directory and [Manifest.VerifyFiles] compares the directory with it;
// [Manifest.Marshal] writes one. A manifest has exactly one spelling: [Parse] rejects bytes that Marshal
// would not have written, so that a digest names a manifest and not one of its spellings.
//
// Versions of the format: 1, described by [Manifest] and [Canonical].
package manifest

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/digest"
)

// FileName is the name of a manifest inside its package.
const FileName = "manifest.json"

// Version is the format that this package reads and writes.
const Version = 1

// Manifest describes a package. Its lists are in the order of [Manifest.Sort]; Marshal and
// Parse reject any other order, because the bytes of a package must not depend on how it was made.
type Manifest struct {
	// Version is the version of the format, 1.
	Version int `json:"manifest"`
	// Digest is the SHA-256 of the canonical bytes with this field empty. Parse checks it; Marshal computes it and
	// ignores the value here.
	Digest digest.Digest `json:"digest"`
	// Name of the package, one path element.
	Name string `json:"name"`
	// Task is [Embed] for a package that turns texts into vectors, [Rerank] for one that scores documents for a query, and empty for
	// one that continues texts.
	Task string `json:"task,omitempty"`
	// Tool is the program that wrote the package.
	Tool Tool `json:"tool"`
	// MinimumEngine is the oldest MNN release that runs the package correctly, for example "3.6.0". The
	// engine does not check this, and older releases may return garbage.
	MinimumEngine string `json:"minimum_engine"`
	// Target is that of the recipe.
	Target Target `json:"target"`
	// Source is the checkpoint.
	Source Source `json:"source"`
	// Recipe is the effective recipe as a JSON object, defaults included; nil when there was none.
	Recipe json.RawMessage `json:"recipe,omitempty"`
	// Files lists every file of the package except manifest.json and its signature, sorted by name.
	Files []File `json:"files"`
	// Tensors lists the stored weights, sorted by file, offset, name and op.
	Tensors []Tensor `json:"tensors,omitempty"`
	// Verified: the checks ran on these bytes and none failed.
	Verified bool `json:"verified"`
	// Checks lists the verdicts in the order in which they were reached; names are unique.
	Checks []Check `json:"checks,omitempty"`
	// Metrics are measurements by name, for example "perplexity".
	Metrics map[string]Metric `json:"metrics,omitempty"`
	// Goldens are recorded outputs that a correct engine reproduces.
	Goldens []Golden `json:"goldens,omitempty"`
	// Threads lists the safe and unsafe thread counts, sorted by pack width.
	Threads []Threads `json:"threads,omitempty"`
	// Conditions are sentences about what the package needs in order to compute correctly.
	Conditions []string `json:"conditions,omitempty"`
	// IgnoredKeys are keys of the source's config.json that do not change the computation, sorted.
	IgnoredKeys []string `json:"ignored_config_keys,omitempty"`
}

// The values of Manifest.Task.
const (
	Embed  = "embed"
	Rerank = "rerank"
)

// Tool is the program that wrote a package.
type Tool struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Target is the engine release and the backends that a package was made for; Backends is sorted.
type Target struct {
	Engine   string   `json:"engine"`
	Backends []string `json:"backends,omitempty"`
}

// Source is the checkpoint from which a package was made. Repo and Revision are empty for a local one, which
// its files identify; Files is sorted by name and has no roles.
type Source struct {
	// Hub is where Repo lives: empty for Hugging Face's hub, or [ModelScope].
	Hub      string `json:"hub,omitempty"`
	Repo     string `json:"repo,omitempty"`
	Revision string `json:"revision,omitempty"`
	// License is the id on the checkpoint's card, such as "apache-2.0", or empty; LicenseName is the name of a licence
	// whose id is "other".
	License     string `json:"license,omitempty"`
	LicenseName string `json:"license_name,omitempty"`
	// Access is [Gated] or [Private] for a repository that not everyone may read, [Unknown] if that could not be
	// determined, else empty.
	Access string `json:"access,omitempty"`
	Files  []File `json:"files,omitempty"`
}

// ModelScope is the value of Source.Hub for repositories of modelscope.cn.
const ModelScope = "modelscope"

// The values of Source.Access.
const (
	Gated   = "gated"   // the repository's terms must be accepted
	Private = "private" // only accounts with permission may read it
	Unknown = "unknown" // the hub does not report it, or could not be reached
)

// Name returns the repository in the form of a reference, which includes the hub: "org/name" for Hugging Face,
// "ms://org/name" for ModelScope. It is empty for a local checkpoint.
func (s Source) Name() string {
	if s.Hub == ModelScope {
		return "ms://" + s.Repo
	}
	return s.Repo
}

// Page returns the address of the repository's web page, empty for a local checkpoint.
func (s Source) Page() string {
	u := url.URL{Scheme: "https", Host: "huggingface.co", Path: "/" + s.Repo}
	switch {
	case s.Repo == "":
		return ""
	case s.Hub == ModelScope:
		u.Host, u.Path = "modelscope.cn", "/models"+u.Path
	}
	return u.String()
}

// File is one file. Name is relative with forward slashes (see [CheckName]), Size in bytes, SHA256 in
// lower-case hex. Role is the purpose of a file of a package, for example "weights" or "license".
type File struct {
	Name   string `json:"name"`
	Role   string `json:"role,omitempty"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Tensor is the place of a checkpoint tensor in the package: Size bytes at Offset of the file File, with their
// SHA-256. Op is the op of the graph that reads them and Spec the storage form, for example "w4-b64-asym".
// A tensor that several ops read appears once for each.
type Tensor struct {
	Name string `json:"name"`
	// Part is the part of the package whose graph has the op; empty for the text model. All tensors of a file have the same.
	Part   string `json:"part,omitempty"`
	Op     string `json:"op"`
	Spec   string `json:"spec"`
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Check is the verdict of one check: passed, skipped, or, if neither is set, failed.
type Check struct {
	Name    string             `json:"name"`
	Passed  bool               `json:"passed"`
	Skipped bool               `json:"skipped,omitempty"`
	Detail  string             `json:"detail,omitempty"`
	Value   map[string]float64 `json:"value,omitempty"`
}

// Failed reports whether the check ran and did not pass.
func (c Check) Failed() bool { return !c.Passed && !c.Skipped }

// Metric is a measured value and its standard error, 0 if that was not estimated.
type Metric struct {
	Value  float64 `json:"value"`
	StdErr float64 `json:"std_err,omitempty"`
}

// Golden is a recorded greedy continuation: Output follows Prompt. TopLogits are the largest logits of
// the position after the prompt, largest first. Provenance names the program that computed them.
type Golden struct {
	Prompt     []int32 `json:"prompt"`
	Output     []int32 `json:"output"`
	TopLogits  []Logit `json:"top_logits,omitempty"`
	Provenance string  `json:"provenance"`
}

// Logit is the value of one token of the vocabulary.
type Logit struct {
	Token int32   `json:"token"`
	Value float32 `json:"value"`
}

// Threads lists thread counts for CPUs on which the engine packs Pack channels: 16 with AVX-512, 8 with
// AVX2, 4 with NEON. With an unsafe count the engine reads maxima that no thread has written. Both lists
// are ascending.
type Threads struct {
	Pack   int   `json:"pack"`
	Safe   []int `json:"safe,omitempty"`
	Unsafe []int `json:"unsafe,omitempty"`
}

// Bytes returns the size of the package without manifest.json and its signature.
func (m *Manifest) Bytes() int64 {
	var n int64
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// Sort sorts every list except Checks, Goldens and Conditions, which keep the order of the caller.
func (m *Manifest) Sort() {
	slices.SortFunc(m.Files, compareFiles)
	slices.SortFunc(m.Source.Files, compareFiles)
	slices.SortFunc(m.Tensors, compareTensors)
	slices.SortFunc(m.Threads, compareThreads)
	for _, t := range m.Threads {
		slices.Sort(t.Safe)
		slices.Sort(t.Unsafe)
	}
	slices.Sort(m.Target.Backends)
	slices.Sort(m.IgnoredKeys)
}

func compareFiles(a, b File) int { return strings.Compare(a.Name, b.Name) }

func compareThreads(a, b Threads) int { return cmp.Compare(a.Pack, b.Pack) }

func compareTensors(a, b Tensor) int {
	return cmp.Or(
		strings.Compare(a.File, b.File),
		cmp.Compare(a.Offset, b.Offset),
		strings.Compare(a.Name, b.Name),
		strings.Compare(a.Op, b.Op),
	)
}
