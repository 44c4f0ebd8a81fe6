// Package provenance describes how a package was made, in a format for supply chain tools: an in-toto Statement v1
// whose predicate is SLSA Provenance v1.
//
// [Of] makes the statement of a package. The subjects are all of its files with their SHA-256, including manifest.json;
// the recipe is the external parameter; the source files are the resolved dependencies. The statement contains neither
// time nor machine, so a package always has the same one. docs/attest.md explains the fields and what they do not
// claim.
//
// Sources: https://github.com/in-toto/attestation/tree/main/spec/v1 and https://slsa.dev/spec/v1.0/provenance.
package provenance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Types and identifiers of a statement.
const (
	StatementType = "https://in-toto.io/Statement/v1"
	PredicateType = "https://slsa.dev/provenance/v1"
	// PayloadType is the type of a statement in a DSSE envelope.
	PayloadType = "application/vnd.in-toto+json"
	// BuildType defines the meaning of the parameters. The fragment changes with that meaning.
	BuildType = "https://github.com/llmexport/llmexport/blob/main/docs/attest.md#build-type-v1"
	// Builder identifies the program, on any machine. The signer's identity vouches for a run.
	Builder = "https://github.com/llmexport/llmexport/blob/main/docs/attest.md#builder"
)

// MaxSubjects is the number of subjects that verifiers accept (sigstore-go v1.3.0, maxAllowedSubjects). Packages with
// more files are rejected, since nobody could check their statement.
const MaxSubjects = 1024

// Statement is the in-toto Statement v1.
type Statement struct {
	Type          string       `json:"_type"`
	Subject       []Descriptor `json:"subject"`
	PredicateType string       `json:"predicateType"`
	Predicate     Predicate    `json:"predicate"`
}

// Descriptor is the in-toto ResourceDescriptor v1. Digest maps algorithms, "sha256" or "gitCommit", to lower-case hex.
type Descriptor struct {
	Name        string            `json:"name,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Digest      map[string]string `json:"digest,omitempty"`
	Annotations map[string]any    `json:"annotations,omitempty"`
}

// Predicate is the SLSA Provenance v1.
type Predicate struct {
	BuildDefinition BuildDefinition `json:"buildDefinition"`
	RunDetails      RunDetails      `json:"runDetails"`
}

// BuildDefinition describes the inputs of the build.
type BuildDefinition struct {
	BuildType string `json:"buildType"`
	// ExternalParameters are set by the user: the name and, if there was one, the effective recipe.
	ExternalParameters map[string]any `json:"externalParameters"`
	// InternalParameters are set by the program: the version of the manifest.
	InternalParameters   map[string]any `json:"internalParameters"`
	ResolvedDependencies []Descriptor   `json:"resolvedDependencies,omitempty"`
}

// RunDetails identifies the builder.
type RunDetails struct {
	Builder    BuilderDetails `json:"builder"`
	Byproducts []Descriptor   `json:"byproducts,omitempty"`
}

// BuilderDetails is the program with the versions of its parts.
type BuilderDetails struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version,omitempty"`
}

// Of returns the statement of the package in dir, in canonical JSON. It reads manifest.json and report.json, which must
// have the listed digest, and no other files; [manifest.Manifest.VerifyFiles] checks those.
func Of(ctx context.Context, dir string) (m *manifest.Manifest, statement []byte, err error) {
	m, err = manifest.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	texts, err := calibration(ctx, m, dir)
	if err != nil {
		return nil, nil, err
	}
	subjects, err := Subjects(m)
	if err != nil {
		return nil, nil, err
	}
	s := Statement{
		Type: StatementType, Subject: subjects, PredicateType: PredicateType,
		Predicate: Predicate{
			BuildDefinition: BuildDefinition{
				BuildType:            BuildType,
				ExternalParameters:   map[string]any{"name": m.Name},
				InternalParameters:   map[string]any{"manifest": m.Version},
				ResolvedDependencies: dependencies(m, texts),
			},
			RunDetails: RunDetails{
				Builder:    BuilderDetails{ID: Builder, Version: map[string]string{m.Tool.Name: m.Tool.Version}},
				Byproducts: byproducts(m),
			},
		},
	}
	if len(m.Recipe) > 0 {
		s.Predicate.BuildDefinition.ExternalParameters["recipe"] = m.Recipe
	}
	statement, err = manifest.Canonical(s)
	if err != nil {
		return nil, nil, err
	}
	return m, statement, nil
}

// Subjects lists the subjects of a package's statement: every file, and manifest.json, sorted by name.
func Subjects(m *manifest.Manifest) ([]Descriptor, error) {
	if len(m.Files) >= MaxSubjects {
		return nil, fmt.Errorf("the package has %d files, and a statement can list only %d: %w", len(m.Files), MaxSubjects-1, tensor.ErrUnsupported)
	}
	data, err := m.Marshal()
	if err != nil {
		return nil, err
	}
	list := []Descriptor{{Name: manifest.FileName, Digest: sha256(digest.Of(data).Hex())}}
	for _, f := range m.Files {
		list = append(list, Descriptor{Name: f.Name, Digest: sha256(f.SHA256)})
	}
	slices.SortFunc(list, func(a, b Descriptor) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func sha256(hex string) map[string]string { return map[string]string{"sha256": hex} }

// byproducts returns the report and its verdict.
func byproducts(m *manifest.Manifest) []Descriptor {
	for _, f := range m.Files {
		if f.Role == reportRole {
			return []Descriptor{{Name: f.Name, Digest: sha256(f.SHA256), Annotations: map[string]any{"verified": m.Verified}}}
		}
	}
	return nil
}
