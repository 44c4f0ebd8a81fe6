package recipes

import (
	"path/filepath"

	"github.com/invopop/jsonschema"
)

// Version is the only recipe version that this program reads.
const Version = 1

// A Recipe is a request for packages. It is immutable after Load.
type Recipe struct {
	Version int    `json:"version"`
	Name    string `json:"name"` // names the package and its files: letters, digits, '.', '_' and '-'
	Model   Model  `json:"model"`
	Target  Target `json:"target"`
	Limits  Limits `json:"limits"`

	// Stages holds one section for every section name given to Load, also for those that the recipe
	// does not mention.
	Stages map[string]Section `json:"-"`

	// Variants are further packages of the same source. Recipes that come from Expand have none.
	Variants []Variant `json:"-"`

	// Dir is the directory of the recipe's file, to which the paths in it are relative.
	Dir string `json:"-"`

	file     string
	sections []string
	root     *node
}

// Model names the source checkpoint: a repository or a local directory, never both.
type Model struct {
	Repo         string   `json:"repo,omitempty" jsonschema_description:"Hugging Face repository such as Qwen/Qwen3-0.6B"`
	Revision     string   `json:"revision,omitempty" jsonschema_description:"Commit, tag or branch; main if absent. The commit is recorded."`
	Path         string   `json:"path,omitempty" jsonschema_description:"Directory of a local checkpoint, relative to the recipe"`
	Type         string   `json:"type,omitempty" jsonschema_description:"model_type that config.json must have; any other is rejected before anything is made"`
	IgnoreConfig []string `json:"ignore_config,omitempty" jsonschema_description:"Keys of config.json that are known not to change results and may be ignored"`
}

// Target is the engine and the devices that must run the package.
type Target struct {
	// Engine is the oldest MNN engine that must run the package, one of [Engines].
	Engine string `json:"engine" jsonschema_description:"Oldest MNN engine that must run the package; a string and therefore in quotes"`
	// Backends names the engine backends that must compute the package correctly, of [Backends], without repetition.
	Backends []string `json:"backends" jsonschema:"minItems=1,uniqueItems=true" jsonschema_description:"Engine backends that must compute it correctly"`
	// Form is the layout of hidden states in the graph, one of [Forms]; empty stands for [FormClassic].
	Form string `json:"form,omitempty" jsonschema_description:"Layout of hidden states in the graph: classic, or c4, which Hexagon needs; classic if absent"`
	// Context limits the positions of the package; 0 stands for all that the checkpoint declares.
	Context int `json:"context,omitempty" jsonschema:"minimum=1" jsonschema_description:"Longest conversation in tokens; that of the checkpoint if absent"`
	// SOC names the family of GPUs of all devices, one of [SOCs]; empty if any may occur.
	SOC string `json:"soc,omitempty" jsonschema_description:"Family of the GPUs of all devices; any if absent"`
	// KVCache is the form of keys and values in the engine's memory, one of [Caches]; empty stands for [CacheFloat].
	KVCache string `json:"kv_cache,omitempty" jsonschema_description:"Form of keys and values in memory, where the backend has a choice; float if absent"`
}

// The forms of graphs.
const (
	FormClassic = "classic"
	FormC4      = "c4"
)

// Forms are the values of target.form.
var Forms = []string{FormClassic, FormC4}

// EngineC4 is the oldest engine that loads graphs of [FormC4].
const EngineC4 = "3.6.1"

// The forms of keys and values.
const (
	CacheFloat    = "float"
	CacheInt8Keys = "int8_keys"
	CacheInt8     = "int8"
)

// Caches are the values of target.kv_cache.
var Caches = []string{CacheFloat, CacheInt8Keys, CacheInt8}

// SOCs are the families of GPUs that a target may name, sorted.
var SOCs = []string{"adreno", "apple", "mali-bifrost", "mali-valhall", "nvidia"}

// Engines are the engine versions that a target may name, oldest first.
var Engines = []string{"3.5", "3.6", "3.6.1"}

// Backends are the engine backends that a target may name, sorted.
var Backends = []string{"cpu", "cuda", "hexagon", "metal", "opencl", "vulkan"}

// JSONSchemaExtend adds the values that the schema allows.
func (Target) JSONSchemaExtend(s *jsonschema.Schema) {
	engine, _ := s.Properties.Get("engine")
	backends, _ := s.Properties.Get("backends")
	for _, e := range Engines {
		engine.Enum = append(engine.Enum, e)
	}
	for _, b := range Backends {
		backends.Items.Enum = append(backends.Items.Enum, b)
	}
	form, _ := s.Properties.Get("form")
	for _, x := range Forms {
		form.Enum = append(form.Enum, x)
	}
	soc, _ := s.Properties.Get("soc")
	for _, x := range SOCs {
		soc.Enum = append(soc.Enum, x)
	}
	cache, _ := s.Properties.Get("kv_cache")
	for _, x := range Caches {
		cache.Enum = append(cache.Enum, x)
	}
}

// Limits bounds what a run may use.
type Limits struct {
	Memory  Size `json:"memory" jsonschema_description:"Memory that a run may use such as 2GiB or 512MiB or a number of bytes"`
	Threads int  `json:"threads" jsonschema:"minimum=0,maximum=1024" jsonschema_description:"Number of worker threads; 0 means one for each core"`
	// DeviceMemory is that of the card of llmexport-cuda; 0 is what is free.
	DeviceMemory Size `json:"device_memory,omitempty" jsonschema_description:"Memory of a card that llmexport-cuda may use; what is free if absent"`
	// Parallel is the number of variants that are made at the same time and share the limits; 0 is automatic.
	Parallel int `json:"parallel,omitempty" jsonschema:"minimum=0,maximum=101" jsonschema_description:"Number of variants made at the same time, which share memory and threads; automatic if absent"`
}

// LeastDeviceMemory is the least that a card is of use with.
const LeastDeviceMemory Size = gib

// DefaultTarget is the target of a recipe that names none.
func DefaultTarget() Target { return Target{Engine: "3.6", Backends: []string{"cpu"}} }

// DefaultLimits are the limits of a recipe that sets none.
func DefaultLimits() Limits { return Limits{Memory: 2 * gib} }

// A Variant is one more package made from the same source: a name and a patch of target, limits and
// sections.
type Variant struct {
	Name  string
	patch *node
}

// Resolve converts a path in the recipe to one that is valid from the working directory.
func (r *Recipe) Resolve(path string) string {
	path = filepath.FromSlash(path)
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(r.Dir, path)
}

// File is the name of the recipe's file as it was given to [Load].
func (r *Recipe) File() string { return r.file }

// Errorf returns an *Error for the value at a key path such as "target.backends[1]", positioned there or,
// if the recipe does not contain that value, at the nearest one around it.
func (r *Recipe) Errorf(path, format string, args ...any) error {
	return errorAt(r.file, r.root, "", path, format, args...)
}

// Expand returns the effective recipes: the recipe itself without its variants and then one for each
// variant. Maps of a variant are merged into those of the recipe, anything else is replaced. Errors are those of [Load].
func (r *Recipe) Expand() ([]*Recipe, error) {
	if r.root == nil {
		return []*Recipe{r}, nil
	}
	base := r.root.without("variants")
	all := make([]*Recipe, 0, 1+len(r.Variants))
	var m mistakes
	for i := -1; i < len(r.Variants); i++ {
		root := base
		if i >= 0 {
			root = merge(base, r.Variants[i].patch)
		}
		v, err := build(root, r.file, r.sections)
		m.add(err)
		if v != nil {
			all = append(all, v)
		}
	}
	return all, m.err()
}
