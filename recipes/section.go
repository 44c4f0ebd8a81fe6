package recipes

// A Section is the part of a recipe that belongs to one stage, before decoding. The zero Section is
// absent.
type Section struct {
	file string
	name string
	node *node
}

// Present reports whether the recipe mentions the section with any content.
func (s Section) Present() bool { return s.node != nil && s.node.kind != null }

// Decode reads the section onto v, a pointer to a value that holds the defaults, by its json tags. An
// absent or empty section leaves v as it is. Structs and maps are filled in key by key, lists are
// replaced, and null clears a pointer, list or map. Types that need more than one form implement
// json.Unmarshaler; what it returns is positioned at the value it was given, or at the key inside that
// value which an error of encoding/json names.
//
// Every error is an *Error or [Errors]; values that cannot be read are then as they were.
func (s Section) Decode(v any) error {
	if !s.Present() {
		return nil
	}
	return decodeInto(s.node, v, s.name)
}

// Errorf returns an *Error for the value at a path within the section, such as "overrides[1].match",
// positioned there or, if the recipe does not contain that value, at the nearest one around it.
// The empty path is the section itself.
func (s Section) Errorf(path, format string, args ...any) error {
	return errorAt(s.file, s.node, s.name, path, format, args...)
}
