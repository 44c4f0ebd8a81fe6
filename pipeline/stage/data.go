package stage

import (
	"encoding/json"

	"github.com/invopop/jsonschema"

	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/pipeline/calibrate/corpus"
)

// CalibrationData is a source of text: a file, or the model itself.
type CalibrationData struct {
	// Samples is the model's own text, drawn at temperature 1; only the weight of Data applies to it.
	Samples bool `json:"samples,omitempty"`
	corpus.Data
}

// samples is the word for the model's own text.
const samples = "samples"

// UnmarshalJSON reads "samples", a path, or a map.
func (d *CalibrationData) UnmarshalJSON(b []byte) error {
	*d = CalibrationData{Data: corpus.Data{Weight: 1}}
	var word string
	if json.Unmarshal(b, &word) == nil {
		if d.Samples = word == samples; !d.Samples {
			d.Path = word
		}
		return nil
	}
	type plain CalibrationData
	return jsondoc.DecodeStrict(b, (*plain)(d))
}

// MarshalJSON writes a form that UnmarshalJSON reads.
func (d CalibrationData) MarshalJSON() ([]byte, error) {
	switch {
	case !d.Samples:
		return json.Marshal(d.Data)
	case d.Weight == 1:
		return json.Marshal(samples)
	}
	return json.Marshal(map[string]any{samples: true, "weight": d.Weight})
}

// JSONSchema describes the forms.
func (CalibrationData) JSONSchema() *jsonschema.Schema {
	r := &jsonschema.Reflector{Anonymous: true, DoNotReference: true, ExpandedStruct: true}
	file := r.Reflect(corpus.Data{})
	file.Version, file.Required = "", []string{"path"}
	props := jsonschema.NewProperties()
	props.Set(samples, &jsonschema.Schema{Const: true})
	weight, _ := file.Properties.Get("weight")
	props.Set("weight", weight)
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
		{Type: "string", Description: "The word samples, for the model's own text, or the path of a file."},
		file,
		{Type: "object", Properties: props, Required: []string{samples}, AdditionalProperties: jsonschema.FalseSchema,
			Description: "The model's own text, drawn at temperature 1."},
	}}
}
