package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

const configName = "config.json"

// Config is a parsed config.json, read key by key. It records which keys were read, so that [Config.Finish] can reject
// the others, and collects problems instead of stopping at the first: an accessor that finds a problem records it and
// returns a harmless value, which must not be used before Finish has returned nil.
//
// A key with the value null counts as missing, as in transformers, except for booleans. Nulls that the model's class in
// transformers does not accept are rejected by Finish.
type Config struct {
	fields   *object
	prefix   string // "" or, for an object within the file, its key and a dot
	consumed map[string]bool
	wrong    map[string]bool // keys with a problem, whose values are placeholders
	children []*Config
	class    *class // the model's in transformers; nil if it has none
	*record
}

// record is shared by a Config and the objects within it.
type record struct {
	family   string
	problems []problem
	// notes are messages for the user, see Decoder.Notes.
	notes []string
	// tensors are the tensors of the checkpoint, used where the file leaves something open.
	tensors map[string]*tensor.Info
	// ignored has the keys that the caller overrides; true once a refusal was overridden.
	ignored map[string]bool
	// root is the whole file.
	root *Config
	// towers are those of the model.
	towers []*Tower
	// ear is that of the model.
	ear *Ear
	// model is the prefix of tensors outside the layers, and head the name of the head, in a checkpoint where the model
	// is part of a larger one; otherwise empty.
	model, head string
}

// ParseConfig parses config.json strictly: at most 4 MiB and 32 levels, valid UTF-8 with or without a byte-order mark,
// no duplicate keys, nothing after the object, numbers kept as written. NaN, Infinity and -Infinity, bare as Python
// writes them or in the notation {"__float__": "NaN"}, are rejected when their key is read. Errors wrap
// tensor.ErrCorrupt.
func ParseConfig(b []byte) (*Config, error) {
	fields, err := parseObject(b)
	if err != nil {
		return nil, err
	}
	c := newConfig(fields, "", &record{})
	c.root = c
	return c, nil
}

func newConfig(fields *object, prefix string, r *record) *Config {
	return &Config{fields: fields, prefix: prefix, consumed: map[string]bool{}, wrong: map[string]bool{}, record: r}
}

// Has reports whether the key exists with a value other than null.
func (c *Config) Has(key string) bool { return c.fields.values[key] != nil }

// know sets the family and the tensors of the checkpoint.
func (c *Config) know(family string, tensors map[string]*tensor.Info) {
	c.family, c.tensors = family, tensors
	c.class = transformers().types[family]
}

// note records a message for the user, once, about something that does not prevent a description.
func (c *Config) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(c.notes, text) {
		c.notes = append(c.notes, text)
	}
}

// Tensor returns the facts of a tensor of the checkpoint, and whether it exists. A family uses it where config.json
// does not decide: how experts are stored, whether there is a head.
func (c *Config) Tensor(name string) (tensor.Info, bool) {
	if info, ok := c.tensors[name]; ok {
		return *info, true
	}
	return tensor.Info{}, false
}

// Int returns a positive integer of at most max.
func (c *Config) Int(key string, max int) int {
	n, ok := c.OptInt(key, max)
	if !ok {
		c.missing(key)
		return 1
	}
	return n
}

// OptInt is Int for an optional key; if it is missing, ok is false.
func (c *Config) OptInt(key string, max int) (n int, ok bool) {
	v := c.take(key)
	if v == nil {
		return 0, false
	}
	number, _ := v.(json.Number)
	i, err := strconv.ParseInt(string(number), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		c.Wrong(key, "%s is out of range", show(v))
	case err != nil:
		c.Wrong(key, "%s is not an integer", show(v))
	case i < 1:
		c.Wrong(key, "%d is not a positive number", i)
	case i > int64(max):
		c.unsupported(key, "%d is more than %d", i, max)
	default:
		return int(i), true
	}
	return 1, true
}

// Float returns a number from lo to hi, both included.
func (c *Config) Float(key string, lo, hi float64) float64 {
	f, ok := c.OptFloat(key, lo, hi)
	if !ok {
		c.missing(key)
		return lo
	}
	return f
}

// OptFloat is Float for an optional key; if it is missing, ok is false.
func (c *Config) OptFloat(key string, lo, hi float64) (f float64, ok bool) {
	v := c.take(key)
	if v == nil {
		return 0, false
	}
	number, isNumber := v.(json.Number)
	f, err := strconv.ParseFloat(string(number), 64)
	switch {
	case !isNumber:
		c.Wrong(key, "%s is not a finite number", show(v))
	case err != nil || f < lo || f > hi:
		c.Wrong(key, "%s is not between %g and %g", show(v), lo, hi)
	default:
		return f, true
	}
	return lo, true
}

// Bool returns true or false, or missing if the key is missing. Null is false, regardless of the default, where the
// class in transformers accepts it, and otherwise an error.
func (c *Config) Bool(key string, missing bool) bool {
	v := c.take(key)
	switch _, there := c.fields.values[key]; {
	case !there:
		return missing
	case v == nil && c.class != nil && !c.class.notNull[key]:
		return false
	}
	b, ok := v.(bool)
	if !ok {
		c.Wrong(key, "%s is not true or false", show(v))
	}
	return b
}

// String returns a string.
func (c *Config) String(key string) string {
	s, ok := c.OptString(key)
	if !ok {
		c.missing(key)
	}
	return s
}

// OptString is String for an optional key; if it is missing, ok is false.
func (c *Config) OptString(key string) (s string, ok bool) {
	v := c.take(key)
	if v == nil {
		return "", false
	}
	s, isString := v.(string)
	if !isString {
		c.Wrong(key, "%s is not a string", show(v))
	}
	return s, true
}

// Strings returns a list of strings, or nil if the key is missing.
func (c *Config) Strings(key string) []string {
	v := c.take(key)
	if v == nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		c.Wrong(key, "%s is not a list of strings", show(v))
		return nil
	}
	out := make([]string, 0, len(list))
	for _, item := range list {
		s, ok := item.(string)
		if !ok {
			c.Wrong(key, "%s in the list is not a string", show(item))
			return nil
		}
		out = append(out, s)
	}
	return out
}

// Object returns the object of a key, or nil if the key is missing. Every key of that object must be read, too.
func (c *Config) Object(key string) *Config {
	v := c.take(key)
	if v == nil {
		return nil
	}
	fields, ok := v.(*object)
	if !ok {
		c.Wrong(key, "%s is not an object", show(v))
		return nil
	}
	child := newConfig(fields, c.prefix+key+".", c.record)
	c.children = append(c.children, child)
	return child
}

// Wrong records an invalid value: missing, of the wrong type, or contradicting another. The caller of Describe cannot
// override it. The error wraps tensor.ErrCorrupt.
func (c *Config) Wrong(key, format string, args ...any) {
	c.add(tensor.ErrCorrupt, key, fmt.Sprintf(format, args...))
}

// Refuse records an unsupported value of a key, unless the caller of Describe overrides the key: then it counts as
// missing. The error wraps tensor.ErrUnsupported.
func (c *Config) Refuse(key, format string, args ...any) {
	names := []string{c.prefix + key}
	if parent, nested := strings.CutSuffix(c.prefix, "."); nested {
		names = append(names, parent)
	}
	for _, name := range names {
		if _, ok := c.ignored[name]; ok {
			c.ignored[name] = true
			return
		}
	}
	c.unsupported(key, format, args...)
}

// Good reports whether these keys have no problem so far, so that their values can be compared.
func (c *Config) Good(keys ...string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool { return c.wrong[key] })
}

// Finish rejects the keys that were not read and are not inert, and returns all problems as one error. It is called
// once, after the last key was read, for the object that describes the model.
func (c *Config) Finish() error {
	c.checkInert()
	c.checkObjects()
	for _, name := range slices.Sorted(maps.Keys(c.ignored)) {
		if c.ignored[name] {
			continue
		}
		reason := "cannot be ignored: no such key"
		if owner, key := c.root.find(name); owner != nil {
			reason = "cannot be ignored: the value is accepted"
			if !owner.Good(key) {
				reason = "cannot be ignored"
			}
		}
		c.problems = append(c.problems, problem{nil, printable(name) + ": " + reason})
	}
	if len(c.problems) > 0 {
		return problems{scope: configName, list: c.problems}
	}
	return nil
}

// checkObjects rejects the unread keys within objects.
func (c *Config) checkObjects() {
	for _, child := range c.children {
		for _, key := range child.fields.keys {
			if !child.consumed[key] {
				child.Refuse(key, "unknown key")
			}
		}
		child.checkObjects()
	}
}

// ignore sets the keys that the caller overrides.
func (c *Config) ignore(names []string) {
	c.ignored = make(map[string]bool, len(names))
	for _, name := range names {
		c.ignored[name] = false
	}
}

// find returns the object with the key of a name, as the caller of Describe writes it, or nil.
func (c *Config) find(name string) (owner *Config, key string) {
	if key, ok := strings.CutPrefix(name, c.prefix); ok {
		if _, ok := c.fields.values[key]; ok {
			return c, key
		}
	}
	for _, child := range c.children {
		if owner, key = child.find(name); owner != nil {
			return owner, key
		}
	}
	return nil, ""
}

// take marks a key as known and returns its value, nil if it is missing or null.
func (c *Config) take(key string) any {
	c.consumed[key] = true
	return c.fields.values[key]
}

func (c *Config) missing(key string) {
	if _, there := c.fields.values[key]; there {
		c.Wrong(key, "null is not allowed")
		return
	}
	c.Wrong(key, "missing")
}

func (c *Config) unsupported(key, format string, args ...any) {
	c.add(tensor.ErrUnsupported, key, fmt.Sprintf(format, args...))
}

func (c *Config) add(kind error, key, text string) {
	c.wrong[key] = true
	c.problems = append(c.problems, problem{kind, printable(c.prefix+key) + ": " + text})
}
