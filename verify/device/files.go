package device

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/publish/manifest"
)

// file is a local file and its place on the device.
type file struct {
	manifest.File        // Name is relative to the directory on the device
	local         string // path on this computer
	executable    bool
}

// Transfer reports what was copied to the device.
type Transfer struct {
	Files  int   `json:"files"`
	Pushed int   `json:"pushed"`
	Bytes  int64 `json:"pushed_bytes"`
	// Compared reports that the device has computed the SHA-256 of every file, and they were right.
	Compared bool `json:"sha256_compared"`
}

// spare is the space, in bytes, that must be left on the device for logs and what the engine writes.
const spare = 32 << 20

// copyFiles copies the files that the directory lacks or that differ in size or SHA-256, and compares what it has copied.
func (a *ADB) copyFiles(ctx context.Context, dir string, files []file) (*Transfer, error) {
	t := &Transfer{Files: len(files), Compared: true}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	sizes, err := a.sizes(ctx, dir, names)
	if err != nil {
		return nil, err
	}
	var same []string
	for _, f := range files {
		if n, ok := sizes[f.Name]; ok && n == f.Size {
			same = append(same, f.Name)
		}
	}
	have, compared, err := a.digests(ctx, dir, same)
	if err != nil {
		return nil, err
	}
	t.Compared = compared
	var missing []file
	for _, f := range files {
		if have[f.Name] != f.SHA256 {
			missing = append(missing, f)
			t.Bytes += f.Size
		}
	}
	if err := a.space(ctx, dir, missing, sizes); err != nil {
		return nil, err
	}
	for _, f := range missing {
		zerolog.Ctx(ctx).Info().Str("file", f.Name).Int64("bytes", f.Size).Msg("pushing")
		if err := a.put(ctx, dir, f); err != nil {
			return nil, err
		}
		t.Pushed++
	}
	return t, a.confirm(ctx, dir, missing, t)
}

func (a *ADB) put(ctx context.Context, dir string, f file) error {
	remote := path.Join(dir, f.Name)
	if _, err := a.do(ctx, "mkdir -p "+quote(path.Dir(remote))); err != nil {
		return err
	}
	if err := a.Push(ctx, f.local, remote); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	if f.executable {
		_, err := a.do(ctx, "chmod 755 "+quote(remote))
		return err
	}
	return nil
}

// confirm compares files that were copied.
func (a *ADB) confirm(ctx context.Context, dir string, files []file, t *Transfer) error {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	sizes, err := a.sizes(ctx, dir, names)
	if err != nil {
		return err
	}
	have, compared, err := a.digests(ctx, dir, names)
	if err != nil {
		return err
	}
	t.Compared = t.Compared && compared
	for _, f := range files {
		if n, ok := sizes[f.Name]; !ok || n != f.Size || compared && have[f.Name] != f.SHA256 {
			return problem("the storage of the device may be full or broken", "%s differs on the device after it was copied", f.Name)
		}
	}
	return nil
}

// do runs a script that must succeed.
func (a *ADB) do(ctx context.Context, script string) (string, error) {
	out, code, err := a.Shell(ctx, script+" 2>&1")
	if err == nil && code != 0 {
		err = adbError("shell", out, fmt.Errorf("exit code %d of %s", code, script))
	}
	return out, err
}

func words(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return strings.Join(quoted, " ")
}

// sizes returns the sizes of those files that exist.
func (a *ADB) sizes(ctx context.Context, dir string, names []string) (map[string]int64, error) {
	sizes := map[string]int64{}
	if len(names) == 0 {
		return sizes, nil
	}
	const each = `; do [ -f "$f" ] && echo "$(wc -c <"$f") $f"; done`
	out, _, err := a.Shell(ctx, "cd "+quote(dir)+" || exit\nfor f in "+words(names)+each)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		n, name, ok := strings.Cut(strings.TrimSpace(line), " ")
		if size, err := strconv.ParseInt(n, 10, 64); ok && err == nil && slices.Contains(names, name) {
			sizes[name] = size
		}
	}
	return sizes, nil
}

// digests returns the SHA-256 of files that exist; ok is false if the device lacks the program.
func (a *ADB) digests(ctx context.Context, dir string, names []string) (sums map[string]string, ok bool, err error) {
	const none = "none"
	const exists = "type sha256sum >/dev/null 2>&1 || { echo " + none + "; exit; }\n"
	sums = map[string]string{}
	out, _, err := a.Shell(ctx, exists+"cd "+quote(dir)+" && sha256sum -- /dev/null "+words(names))
	if err != nil || strings.TrimSpace(out) == none {
		return sums, false, err
	}
	for line := range strings.Lines(out) {
		sum, name, ok := strings.Cut(strings.TrimRight(line, "\n"), "  ")
		if ok && len(sum) == 64 {
			sums[name] = sum
		}
	}
	if len(sums) != len(names)+1 {
		return nil, false, fmt.Errorf("sha256sum of the device printed %q", shorten(out))
	}
	return sums, true, nil
}

// space returns an error if the files do not fit. Sizes are those of the files that they replace.
func (a *ADB) space(ctx context.Context, dir string, files []file, sizes map[string]int64) error {
	if len(files) == 0 {
		return nil
	}
	need := int64(spare)
	for _, f := range files {
		need += f.Size - sizes[f.Name]
	}
	out, err := a.do(ctx, "df -k "+quote(dir))
	if err != nil {
		return err
	}
	if free, ok := parseFree(out); ok && free < need {
		return problem("free space there, or name another directory with --dir", "%s of the device has %s free; %s are needed",
			dir, sheet.Size(free), sheet.Size(need))
	}
	return nil
}

// parseFree reads the output of df -k: a header, then one file system, whose name may stand on a line of its own. It returns
// the free bytes; ok is false if the output has another form.
func parseFree(out string) (free int64, ok bool) {
	head, rest, _ := strings.Cut(out, "\n")
	at := slices.IndexFunc(strings.Fields(head), func(s string) bool { return strings.HasPrefix(s, "Avail") || s == "Free" })
	fields := strings.Fields(rest)
	if at < 1 || at >= len(fields) {
		return 0, false
	}
	n, err := strconv.ParseInt(fields[at], 10, 64)
	if err != nil || n < 0 || n > 1<<50 {
		return 0, false
	}
	return n << 10, true
}

// remove deletes files, and directories that are empty then, the outermost of which is dir.
func (a *ADB) remove(ctx context.Context, dir string, names []string) error {
	dirs := map[string]bool{dir: true}
	paths := make([]string, len(names))
	for i, n := range names {
		paths[i] = path.Join(dir, n)
		for d := path.Dir(n); d != "."; d = path.Dir(d) {
			dirs[path.Join(dir, d)] = true
		}
	}
	deepest := slices.SortedFunc(maps.Keys(dirs), func(a, b string) int { return len(b) - len(a) })
	_, _, err := a.Shell(ctx, "rm -f "+words(paths)+"\nrmdir "+words(deepest)+" 2>/dev/null")
	return err
}
