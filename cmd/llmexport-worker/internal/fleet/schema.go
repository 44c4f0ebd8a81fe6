package fleet

import (
	"encoding/json"
	"reflect"

	"github.com/invopop/jsonschema"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
)

// Schema is the JSON Schema, draft 2020-12, of fleet files.
func Schema() ([]byte, error) {
	r := jsonschema.Reflector{Anonymous: true, DoNotReference: true, ExpandedStruct: true, RequiredFromJSONSchemaTags: true}
	s := r.ReflectFromType(reflect.TypeFor[Fleet]())
	s.Title = "llmexport fleet"
	d := Default()
	defaults := map[string]any{"on_failure": d.OnFailure, "parallel": d.Parallel, "attempts": d.Attempts, "heartbeat": d.Heartbeat}
	for key, v := range defaults {
		if p, ok := s.Properties.Get(key); ok {
			p.Default = v
		}
	}
	entry, _ := s.Properties.Get("repositories")
	for _, of := range []*jsonschema.Schema{s, entry.Items} {
		queues, _ := of.Properties.Get("queues")
		queues.AdditionalProperties = jsonschema.FalseSchema
		queues.Properties = jsonschema.NewProperties()
		for _, role := range flow.Roles() {
			queues.Properties.Set(role, &jsonschema.Schema{Type: "string", Pattern: queueRE.String()})
		}
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// JSONSchema describes a duration to the schema.
func (Duration) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: `^([0-9.]+(ms|s|m|h))+$`}
}
