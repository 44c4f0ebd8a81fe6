package calibrate

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/sealed"
)

// snapshotFile holds the state of a tuning between two steps: a sealed line of JSON, then the parameters.
const snapshotFile = tunedPrefix + "state.bin"

// A snapshot is written once tuning has taken snapshotShare times as long as writing the last one took, but not less often than
// snapshotMost.
const (
	snapshotShare = 20
	snapshotMost  = 60 * time.Second
)

// snapshot is the first line of its file.
type snapshot struct {
	Step int `json:"step"`
	// Judged is the last step whose parameters were judged, -1 before the first.
	Judged int `json:"judged"`
	// Best is the step with the least divergence on the held-back windows, Least that divergence, First the one before tuning.
	Best  int     `json:"best"`
	Least float64 `json:"least"`
	First float64 `json:"first"`
	// SHA256 is of the parameters.
	SHA256 string `json:"sha256"`
}

// about names what a snapshot is about: the directory's purpose, and the codes that are tuned.
func (t *tuning) about() string { return t.Options.Name + "/" + snapshotFile + ":" + t.codes }

// floats lists everything that a snapshot stores, in a fixed order.
func (t *tuning) floats() (all [][]float32) {
	for _, p := range t.all {
		all = append(all, p.state()...)
	}
	return all
}

// save writes a snapshot.
func (t *tuning) save() error {
	s := t.snapshot
	h := digest.New()
	for _, x := range t.floats() {
		h.Write(bytesOf(x))
	}
	s.SHA256 = h.Hex()
	head, err := sealed.Marshal(t.about(), s)
	if err != nil {
		return err
	}
	path := filepath.Join(t.Dir, snapshotFile)
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(append(head, '\n')); err != nil {
		return err
	}
	for _, x := range t.floats() {
		if _, err := f.Write(bytesOf(x)); err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// restore continues from a snapshot, and reports whether there was one for the same codes. A damaged one counts as none.
func (t *tuning) restore(ctx context.Context) bool {
	f, err := os.Open(filepath.Join(t.Dir, snapshotFile))
	if err != nil {
		return false
	}
	defer f.Close()
	s, ok := t.readSnapshot(bufio.NewReader(f))
	if !ok {
		for _, x := range t.floats() {
			clear(x)
		}
		return false
	}
	t.snapshot = s
	zerolog.Ctx(ctx).Info().Int("step", s.Step).Msg("resuming the tuning of an earlier run")
	return true
}

// readSnapshot fills the parameters, and reports whether the file is intact.
func (t *tuning) readSnapshot(r *bufio.Reader) (s snapshot, ok bool) {
	line, err := r.ReadBytes('\n')
	if err != nil || sealed.Unmarshal(t.about(), line, &s) != nil || s.Step > t.Steps {
		return s, false
	}
	h := digest.New()
	for _, x := range t.floats() {
		if _, err := io.ReadFull(r, bytesOf(x)); err != nil {
			return s, false
		}
		h.Write(bytesOf(x))
	}
	_, err = r.ReadByte()
	ok = err == io.EOF && h.Hex() == s.SHA256
	s.SHA256 = ""
	return s, ok
}

// forget removes the snapshot of a finished tuning.
func (t *tuning) forget() error {
	err := os.Remove(filepath.Join(t.Dir, snapshotFile))
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
