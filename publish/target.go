package publish

import (
	"encoding/json"
	"slices"
)

// Target is an entry of a recipe's publish list. Exactly one kind of place is given, with options of that kind.
type Target struct {
	// Dir is a directory of this machine; a relative one is relative to the recipe.
	Dir string `json:"dir,omitempty" jsonschema_description:"Directory of this machine, relative to the recipe."`
	// Hub is a repository of Hugging Face, "org/name".
	Hub string `json:"hub,omitempty" jsonschema_description:"Repository of Hugging Face, org/name."`
	// ModelScope is a repository of ModelScope, "org/name".
	ModelScope string `json:"modelscope,omitempty" jsonschema_description:"Repository of ModelScope, org/name."`
	// OCI is a tag of an OCI registry, as registry/repository:tag.
	OCI string `json:"oci,omitempty" jsonschema_description:"Tag of an OCI registry such as ghcr.io/org/name:int4."`
	// S3 is a prefix of a bucket, as s3://bucket/prefix.
	S3 string `json:"s3,omitempty" jsonschema_description:"Prefix of a bucket in an S3-compatible store such as s3://bucket/prefix."`
	// Private makes a new repository private; an existing public one is an error.
	Private bool `json:"private,omitempty" jsonschema_description:"The place is not public."`
	// Gated is "auto" or "manual".
	Gated string `json:"gated,omitempty" jsonschema:"enum=auto,enum=manual" jsonschema_description:"Readers must accept terms first; access is granted automatically or by hand."`
	// Branch and Tag are those of a repository.
	Branch string `json:"branch,omitempty" jsonschema_description:"Branch to commit to; main by default, and created from main if it does not exist."`
	Tag    string `json:"tag,omitempty" jsonschema_description:"Tag of the commit; an existing one is never moved."`
	// Endpoint is the address of the service. For a hub, it must be that of the environment, whose token is sent
	// nowhere else.
	Endpoint string `json:"endpoint,omitempty" jsonschema_description:"Base URL of the store or hub if it is not the usual one."`
	// Region is that of a bucket.
	Region string `json:"region,omitempty" jsonschema_description:"Region of the bucket."`
	// Message is the title of the commit.
	Message string `json:"message,omitempty" jsonschema_description:"Title of the commit."`
	// Channel is a name that moves to the package once all places have it.
	Channel string `json:"channel,omitempty" jsonschema_description:"Name such as stable that moves to the package once all places have it."`
	// Replace allows replacing another package of llmexport in the same place.
	Replace bool `json:"replace,omitempty" jsonschema_description:"Replace another package of this program that is already there."`
	// LicenseAck is the id of a restrictive licence, which must be acknowledged to publish the package in a public
	// place.
	LicenseAck string `json:"license_ack,omitempty" jsonschema_description:"Id of the source's licence; required in a public place if the source is gated, private, non-commercial or without a known licence."`
}

// With returns t with those of the given options that its kind of place supports; a command line sets them for all of
// its places.
func (t Target) With(options ...string) (Target, error) {
	set := map[string]bool{}
	for _, k := range kinds {
		for _, o := range options {
			if k.ref(t) != "" && slices.Contains(k.options, o) {
				set[o] = true
			}
		}
	}
	b, err := json.Marshal(set)
	if err != nil {
		return t, err
	}
	err = json.Unmarshal(b, &t)
	return t, err
}

// permanent reports whether a place cannot be reverted.
func (t Target) permanent() bool {
	return slices.ContainsFunc(kinds, func(k kind) bool { return k.keeps && k.ref(t) != "" })
}
