// Package device checks a package on an Android device: it copies the package there with adb, runs the engine's own programs
// on it, and compares what they compute with what the package's weights give on this computer.
//
// [Run] does all of it. It needs the program adb and an engine for the device: llm_demo, which continues prompts, with the
// shared libraries of MNN, and, if it is there, ppl_eval, which computes a perplexity. The output of these programs is read
// strictly: output in another form is an error and never a success.
package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// DefaultDir is the directory on the device that holds packages and engine. The shell of Android may write and start
// programs there.
const DefaultDir = "/data/local/tmp/llmexport"

// workName is the directory, next to the package, that exists while programs run.
const workName = "verify"

// Options configures Run.
type Options struct {
	// Serial names a device; empty takes the only one.
	Serial string
	// Dir is the directory on the device, an absolute path.
	Dir string
	// EngineDir is a local directory with an engine to copy to Dir; empty if the engine is there.
	EngineDir string
	// Clean removes from the device, at the end, the package and what was copied of EngineDir.
	Clean bool
	// Text is that of the prompts, in addition to those of the manifest, and of the perplexity.
	Text string
	// CacheBytes bounds the expanded weights of each of the two sessions on this computer; Threads compute there, 0 means all.
	CacheBytes int64
	Threads    int
}

// Result is what Run has found.
type Result struct {
	Phone    *Phone    `json:"device"`
	Engine   *Engine   `json:"engine"`
	Dir      string    `json:"dir"` // of the package on the device
	Transfer *Transfer `json:"transfer"`
	// Checks have outcomes; Metrics are the speed and memory of the engine.
	Checks  []about.Measure `json:"checks"`
	Metrics []about.Measure `json:"metrics"`
	// Unchecked lists, in sentences, what these checks do not cover.
	Unchecked []string `json:"not_checked"`
}

// Failed lists the names of the checks that failed.
func (r *Result) Failed() []string {
	var names []string
	for _, c := range r.Checks {
		if c.Outcome == about.Failed {
			names = append(names, c.Name)
		}
	}
	return names
}

// CheckDir returns an error unless dir can be the directory on a device.
func CheckDir(dir string) error {
	if !path.IsAbs(dir) || path.Clean(dir) != dir || strings.Count(dir, "/") < 2 || strings.ContainsAny(dir, "\n\r\x00") {
		return fmt.Errorf("%q is not an absolute path of a directory of its own, such as %s", dir, DefaultDir)
	}
	return nil
}

// session is one call of Run.
type session struct {
	*ADB
	o      Options
	dir    string // of the local package
	m      *manifest.Manifest
	pkg    *runtime.Package
	host   *host
	remote string // directory of the package on the device
	work   string
	files  []file // of the package
	result *Result
}

// Run checks the package in dir, whose manifest is m or nil. A check that fails is part of the result; an error is an
// [*Error], a [*ChoiceError], an [*OutputError], or wraps tensor.ErrUnsupported if engine, device and package do not fit.
func Run(ctx context.Context, dir string, m *manifest.Manifest, o Options) (_ *Result, err error) {
	if m != nil {
		if err := m.VerifyFiles(ctx, dir); err != nil {
			return nil, err
		}
	}
	p, err := runtime.Open(dir)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(abs)
	if m != nil {
		name = m.Name
	}
	s := &session{o: o, dir: dir, m: m, pkg: p, remote: path.Join(o.Dir, name), work: path.Join(o.Dir, name+"."+workName)}
	s.result = &Result{Dir: s.remote, Checks: []about.Measure{}, Metrics: []about.Measure{}}
	if s.files, err = s.packageFiles(ctx); err != nil {
		return nil, err
	}
	if s.ADB, err = Connect(ctx, o.Serial); err != nil {
		return nil, err
	}
	if s.result.Phone, err = s.Phone(ctx); err != nil {
		return nil, err
	}
	zerolog.Ctx(ctx).Info().Stringer("device", s.result.Phone).Msg("connected")
	defer func() { err = errors.Join(err, s.leave(ctx)) }()
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	return s.result, s.check(ctx)
}

// packageFiles lists the files that the engine opens.
func (s *session) packageFiles(ctx context.Context) ([]file, error) {
	var files []file
	for _, name := range s.pkg.Files() {
		if slices.ContainsFunc(files, func(f file) bool { return f.Name == name }) {
			continue
		}
		local := filepath.Join(s.dir, filepath.FromSlash(name))
		var listed manifest.File
		if s.m != nil {
			if i := slices.IndexFunc(s.m.Files, func(f manifest.File) bool { return f.Name == name }); i >= 0 {
				listed = s.m.Files[i]
			}
		}
		if listed.SHA256 == "" {
			var err error
			if listed, err = manifest.HashFile(ctx, local); err != nil {
				return nil, err
			}
			listed.Name = name
		}
		files = append(files, file{File: listed, local: local})
	}
	return files, nil
}

// prepare copies engine and package, and examines the engine.
func (s *session) prepare(ctx context.Context) error {
	if _, err := s.do(ctx, "mkdir -p "+quote(s.o.Dir)+" "+quote(s.remote)+" "+quote(s.work)); err != nil {
		return err
	}
	if s.o.EngineDir != "" {
		files, err := engineFiles(ctx, s.o.EngineDir)
		if err != nil {
			return err
		}
		for _, f := range files {
			if f.Name != demoProgram {
				continue
			}
			if abi, err := abiOf(f.local); err != nil {
				return err
			} else if !slices.Contains(s.result.Phone.ABIs, abi) {
				return wrongABI(f.Name, abi, s.result.Phone)
			}
		}
		if _, err := s.copyFiles(ctx, s.o.Dir, files); err != nil {
			return err
		}
	}
	var err error
	if s.result.Engine, err = s.engine(ctx, s.o.Dir, s.result.Phone); err != nil {
		return err
	}
	if v := s.result.Engine.Version; s.m != nil && v != "" && olderRelease(v, s.m.MinimumEngine) {
		return fmt.Errorf("the engine on the device is MNN %s; the package needs %s: %w", v, s.m.MinimumEngine, tensor.ErrUnsupported)
	}
	s.result.Transfer, err = s.copyFiles(ctx, s.remote, s.files)
	return err
}

// leaveLimit bounds the time that cleaning up takes after an interrupt.
const leaveLimit = 10 * time.Second

// leave removes the working directory, which ends a program that runs there, and, if asked to, the package and the engine that
// was copied. It does so after an interrupt, too.
func (s *session) leave(ctx context.Context) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
		defer cancel()
	}
	if _, _, err := s.Shell(ctx, "rm -rf "+quote(s.work)); err != nil || !s.o.Clean {
		return nil // the connection is gone, which the caller reports
	}
	names := make([]string, len(s.files))
	for i, f := range s.files {
		names[i] = f.Name
	}
	if err := s.remove(ctx, s.remote, names); err != nil {
		return err
	}
	names = nil
	if s.o.EngineDir != "" {
		files, err := engineFiles(ctx, s.o.EngineDir)
		if err != nil {
			return err
		}
		for _, f := range files {
			names = append(names, f.Name)
		}
	}
	return s.remove(ctx, s.o.Dir, names)
}

// setting is a way to run the package.
type setting struct {
	// suffix is added to the names of checks.
	suffix string
	// file is the name of its configuration on the device.
	file string
	// float computes weights and activations in float32.
	float bool
	// gap is how far, in logits, a token of the engine may be below the best.
	gap float64
}

// alwaysFits is the size of weights, in bytes, that a device has memory for, even if it does not report any.
const alwaysFits = 256 << 20

// tooLarge returns a sentence if the device lacks the memory for weights in float32.
func (s *session) tooLarge() string {
	var need int64
	for _, f := range s.files {
		need += f.Size
	}
	if s.m != nil {
		need = 0
		for _, t := range s.m.Tensors {
			if spec, err := quant.ParseSpec(t.Spec); err == nil {
				need += t.Size * 8 / int64(spec.Bits) * 4
			}
		}
	} else {
		need *= 8 // of 4 bits
	}
	free := s.result.Phone.Available
	if need <= max(free/2, alwaysFits) {
		return ""
	}
	return fmt.Sprintf("the engine in float, where the weights take %s; %s of memory are available", sheet.Size(need), sheet.Size(free))
}

// writeConfig puts the package's config.json into the working directory, changed so that the engine takes the files of the
// package, the prompt as it is, and always the likeliest token.
func (s *session) writeConfig(ctx context.Context, x setting) error {
	b, err := os.ReadFile(filepath.Join(s.dir, "config.json"))
	if err != nil {
		return err
	}
	keys := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &keys); err != nil {
		return fmt.Errorf("config.json: %v: %w", err, tensor.ErrCorrupt)
	}
	set := func(key, value string) { keys[key], _ = json.Marshal(value) }
	set("base_dir", s.remote+"/")
	set("sampler_type", "greedy")
	keys["use_template"] = json.RawMessage("false")
	if x.float {
		set("memory", "high")
		set("precision", "high")
	}
	if b, err = json.MarshalIndent(keys, "", "  "); err != nil {
		return err
	}
	return s.putText(ctx, x.file, string(b)+"\n")
}

// putText writes a file of the working directory.
func (s *session) putText(ctx context.Context, name, text string) error {
	tmp, err := os.MkdirTemp("", "llmexport-put")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	local := filepath.Join(tmp, path.Base(name))
	if err := os.WriteFile(local, []byte(text), 0o644); err != nil {
		return err
	}
	return s.Push(ctx, local, path.Join(s.work, name))
}
