package serve

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/jsondoc"
)

// fields are the members of a request that have not been read yet.
type fields map[string]json.RawMessage

// readFields reads a request. Members that are null count as absent.
func readFields(body []byte) (fields, error) {
	var f fields
	if err := jsondoc.Decode(body, &f); err != nil {
		return nil, badf("", "the request is not a JSON object: %v", err)
	}
	if f == nil {
		return nil, badf("", "the request is not a JSON object")
	}
	for name, v := range f {
		if string(v) == "null" {
			delete(f, name)
		}
	}
	return f, nil
}

// read decodes a member into v and reports whether it was there.
func (f fields) read(name string, v any, want string) (bool, error) {
	raw, ok := f[name]
	if !ok {
		return false, nil
	}
	delete(f, name)
	if err := json.Unmarshal(raw, v); err != nil {
		return false, badf(name, "%s must be %s", name, want)
	}
	return true, nil
}

// number reads a number between low and high; absent, it is the default.
func (f fields) number(name string, otherwise, low, high float64) (float64, error) {
	v := otherwise
	if _, err := f.read(name, &v, "a number"); err != nil {
		return 0, err
	}
	if !(v >= low && v <= high) {
		return 0, badf(name, "%s must be between %g and %g, not %g", name, low, high, v)
	}
	return v, nil
}

// integer is number for integers.
func (f fields) integer(name string, otherwise, low, high int) (int, error) {
	v, err := f.number(name, float64(otherwise), float64(low), float64(high))
	if err == nil && v != math.Trunc(v) {
		err = badf(name, "%s must be a whole number, not %g", name, v)
	}
	return int(v), err
}

func (f fields) boolean(name string) (v bool, err error) {
	_, err = f.read(name, &v, "true or false")
	return v, err
}

// inert are members that do not change what is computed.
var inert = []string{"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}

// done rejects the members that were not read: nothing that a client asks for is ignored.
func (f fields) done() error {
	var left []string
	for name, raw := range f {
		if !slices.Contains(inert, name) && !harmless(name, raw) {
			left = append(left, name)
		}
	}
	if len(left) == 0 {
		return nil
	}
	slices.Sort(left)
	return badf(left[0], "this server does not support %s", strings.Join(left, ", "))
}

// harmless reports whether a member that is not supported has the value that it has by default.
func harmless(name string, raw json.RawMessage) bool {
	switch text := string(raw); name {
	case "logit_bias":
		return text == "{}"
	case "parallel_tool_calls":
		return true // at most: the model decides
	case "suffix":
		return text == `""`
	case "best_of":
		return text == "1"
	case "response_format":
		var format struct {
			Type string `json:"type"`
		}
		return json.Unmarshal(raw, &format) == nil && format.Type == "text"
	case "modalities":
		var list []string
		return json.Unmarshal(raw, &list) == nil && slices.Equal(list, []string{"text"})
	}
	return false
}
