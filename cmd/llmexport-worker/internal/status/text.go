package status

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
	"github.com/llmexport/llmexport/internal/sheet"
)

// Write prints the status as text: tasks at work, what failed, what each part waits for, and the queues.
func (s *Status) Write(w io.Writer, all bool) error {
	t := sheet.New()
	t.Row("release", s.Release)
	t.Row("state", s.headline())
	t.Row("packages", s.counts())
	t.Row("began", s.Began.Format(time.DateTime)+" UTC, "+lasted(s.Taken.Sub(s.Began))+" ago")
	if !s.Ended.IsZero() {
		t.Row("took", lasted(s.Ended.Sub(s.Began)))
	}
	if err := t.Write(w, true); err != nil {
		return err
	}
	t = sheet.New("package", "stage", ">done", ">left", "attempt", "worker", "note")
	for _, x := range s.Tasks {
		t.Row(x.title(), x.Stage, x.fraction(), x.left(), x.Attempt, x.Worker, x.note())
	}
	if err := t.Write(w, false); err != nil {
		return err
	}
	t = sheet.New("failed", "why")
	for _, p := range s.failures() {
		t.Row(p.Name, firstLine(p.Error))
	}
	if err := t.Write(w, false); err != nil {
		return err
	}
	if all {
		t = sheet.New("package", "repository", "state", "digest", "places")
		for _, r := range s.Repositories {
			for _, p := range r.Packages {
				t.Row(p.Name, r.ID, string(p.Phase), string(p.Digest), strings.Join(p.Places, " "))
			}
		}
		if err := t.Write(w, false); err != nil {
			return err
		}
	}
	t = sheet.New("part", "state", "channels")
	for _, p := range s.Parts {
		t.Row(s.part(p), string(p.Phase), channels(p))
	}
	if err := t.Write(w, false); err != nil {
		return err
	}
	t = sheet.New("queue", ">workers", ">waiting")
	for _, l := range s.Lanes {
		t.Row(l.Queue, l.Workers, l.Backlog)
	}
	if err := t.Write(w, false); err != nil || !s.Ended.IsZero() {
		return err
	}
	for _, l := range s.Lanes {
		if l.Workers == 0 {
			_, err := fmt.Fprintf(w, "\nqueue %s has no worker: start one of this version with the store %s\n", l.Queue, sheet.Plain(s.Store))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// headline is the state of the release in words.
func (s *Status) headline() string {
	switch {
	case s.Ended.IsZero():
		return "running"
	case s.Phase == flow.Running: // ended from outside
		return strings.ToLower(s.Server)
	}
	return string(s.Phase)
}

func (s *Status) counts() string {
	text := fmt.Sprintf("%d complete", s.Count(flow.Complete))
	for _, p := range []flow.Phase{flow.Running, flow.Waiting, flow.Failed, flow.Cancelled} {
		if n := s.Count(p); n > 0 {
			text += fmt.Sprintf(", %d %s", n, p)
		}
	}
	return text
}

func (s *Status) failures() (list []flow.PackageState) {
	for _, r := range s.Repositories {
		for _, p := range r.Packages {
			if p.Phase == flow.Failed {
				list = append(list, p)
			}
		}
	}
	return list
}

func (t *Task) title() string {
	if t.Package != "" {
		return t.Package
	}
	return t.Repository
}

func (t *Task) fraction() string {
	if t.Progress == nil || !t.Running {
		return ""
	}
	return fmt.Sprintf("%d%%", int(100*t.Progress.Fraction))
}

func (t *Task) left() string {
	if t.Progress == nil || !t.Running || t.Progress.Left < 0 {
		return ""
	}
	return lasted(time.Duration(t.Progress.Left * float64(time.Second)))
}

// note says what the task does, or why it does nothing.
func (t *Task) note() string {
	switch {
	case t.Running && t.Progress != nil:
		return strings.TrimSpace(t.Progress.Stage + " " + t.Progress.What)
	case t.Running:
		return ""
	case t.Error != "":
		return "waits for another attempt after: " + firstLine(t.Error)
	}
	return "waits for a worker"
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// part is the name of a part for people.
func (s *Status) part(p flow.PartState) string {
	switch {
	case p.Part != "":
		return p.Part
	case len(s.Parts) == 1:
		return "the release"
	}
	return "the others"
}

func channels(p flow.PartState) string {
	var list []string
	for _, m := range p.Channels {
		list = append(list, fmt.Sprintf("%s@%s %s", m.Place, m.Channel, m.Status))
	}
	slices.Sort(list)
	if p.Error != "" {
		list = append(list, p.Error)
	}
	return strings.Join(list, "; ")
}

// lasted writes a time in its two largest units.
func lasted(d time.Duration) string {
	switch d = max(d, 0).Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm %ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh %dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd %dh", int(d.Hours())/24, int(d.Hours())%24)
}
