package recipes

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/invopop/jsonschema"
)

// Schema is the JSON Schema, draft 2020-12, of recipe files. The sections map a section's name to a
// pointer to its options, whose values are shown as defaults. Enumerations and bounds come from jsonschema
// tags, descriptions from jsonschema_description tags, unusual forms from a JSONSchema method, as
// github.com/invopop/jsonschema reads them; a key is required only if its jsonschema tag says so.
func Schema(sections map[string]any) ([]byte, error) {
	root := &jsonschema.Schema{
		Version:              jsonschema.Version,
		Title:                "llmexport recipe",
		Type:                 "object",
		Properties:           jsonschema.NewProperties(),
		AdditionalProperties: jsonschema.FalseSchema,
		Required:             []string{"version", "name", "model"},
		Definitions:          jsonschema.Definitions{},
	}
	variant := &jsonschema.Schema{
		Type:                 "object",
		Properties:           jsonschema.NewProperties(),
		AdditionalProperties: jsonschema.FalseSchema,
		Required:             []string{"name"},
	}
	name := &jsonschema.Schema{
		Type:        "string",
		Pattern:     nameRE.String(),
		Description: "Name of the package that is made, and of its files",
	}
	root.Properties.Set("version", &jsonschema.Schema{Const: Version, Description: "Version of the recipe format"})
	root.Properties.Set("name", name)
	variant.Properties.Set("name", name)

	add := func(key, description string, v any) error {
		def, err := reflectSchema(v)
		if err != nil {
			return fmt.Errorf("section %s: %w", key, err)
		}
		if def.Description == "" {
			def.Description = description
		}
		root.Definitions[key] = def
		ref := &jsonschema.Schema{Ref: "#/$defs/" + key}
		root.Properties.Set(key, ref)
		if key != "model" {
			variant.Properties.Set(key, ref)
		}
		return nil
	}
	target, limits := DefaultTarget(), DefaultLimits()
	if err := add("model", "The source checkpoint: a repository or a local directory", &Model{}); err != nil {
		return nil, err
	}
	root.Definitions["model"].OneOf = []*jsonschema.Schema{{Required: []string{"repo"}}, {Required: []string{"path"}}}
	if err := add("target", "What must be able to run the package", &target); err != nil {
		return nil, err
	}
	if err := add("limits", "What a run may use", &limits); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(sections)) {
		if err := add(key, "Options of the stage "+key, sections[key]); err != nil {
			return nil, err
		}
	}
	root.Properties.Set("variants", &jsonschema.Schema{
		Type:        "array",
		Items:       variant,
		Description: "Further packages of the same source, each a patch of the above",
	})
	data, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

// reflectSchema describes the type of v and shows its values as the defaults of its properties.
func reflectSchema(v any) (*jsonschema.Schema, error) {
	t := reflect.TypeOf(v)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	r := jsonschema.Reflector{
		Anonymous:                  true,
		DoNotReference:             true, // the options of two stages may have types of the same name
		ExpandedStruct:             t.Kind() == reflect.Struct,
		RequiredFromJSONSchemaTags: true,
	}
	s := r.ReflectFromType(t)
	s.Version = ""
	defaults, err := nodeOf(v)
	if err != nil {
		return nil, err
	}
	setDefaults(s, defaults)
	return s, nil
}

func setDefaults(s *jsonschema.Schema, defaults *node) {
	if s.Properties == nil {
		return
	}
	for _, e := range defaults.entries {
		p, ok := s.Properties.Get(e.key)
		switch {
		case !ok || e.value.kind == null:
		case e.value.kind == mapping:
			setDefaults(p, e.value)
		default:
			p.Default = json.RawMessage(e.value.json())
		}
	}
}
