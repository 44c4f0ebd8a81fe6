package fleet

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage"
)

// Estimate is what a release takes if nothing of it is in the shared store.
type Estimate struct {
	Release      string               `json:"release"`
	Repositories []RepositoryEstimate `json:"repositories"`
	// CoreHours is the work of all stages; without downloads.
	CoreHours float64 `json:"core_hours"`
	// Bytes of checkpoints, of the packages, and of everything that the shared store gets.
	Checkpoints int64 `json:"checkpoint_bytes"`
	Packages    int64 `json:"package_bytes"`
	Stored      int64 `json:"store_bytes"`
	// Hours is the time on the machines of the fleet, at least; Cost is the price of the work. Both are absent without workers.
	Hours float64 `json:"hours,omitempty"`
	Cost  float64 `json:"cost,omitempty"`
	// Refused counts packages that cannot be made.
	Refused int `json:"refused,omitempty"`

	packages int
	workers  *Workers
}

// RepositoryEstimate is what a repository takes.
type RepositoryEstimate struct {
	ID       string            `json:"id"`
	Commit   string            `json:"commit,omitempty"`
	Packages []PackageEstimate `json:"packages"`
	// Shared is the work that is done once for all packages, in core-seconds by stage.
	Shared      map[string]float64 `json:"shared_core_seconds"`
	Checkpoint  int64              `json:"checkpoint_bytes"`
	CoreSeconds float64            `json:"core_seconds"`
	// Error is why no package of the repository can be made.
	Error string `json:"error,omitempty"`

	chain float64 // core-seconds of the longest package, with what it waits for
}

// PackageEstimate is what a package takes in addition.
type PackageEstimate struct {
	Name        string             `json:"name"`
	Bytes       int64              `json:"package_bytes"`
	CoreSeconds map[string]float64 `json:"core_seconds"`
	// Memory is about the most that its stages use, in bytes.
	Memory int64  `json:"peak_memory_bytes"`
	Error  string `json:"error,omitempty"`
}

// Estimate reads the configuration and the headers of every model and predicts the release from the speed of this machine. Each
// repository is reported to progress when it is done. A model that cannot be read or is refused is in the result.
func (r *Resolved) Estimate(ctx context.Context, progress func(done, total int)) (*Estimate, error) {
	e := &Estimate{Release: r.Plan.Release, workers: r.fleet.Workers}
	rates := map[int]effort.Rates{}
	measured := func(width int) effort.Rates {
		if _, ok := rates[width]; !ok {
			rates[width] = estimate.Probe("", r.limit.Threads, width)
		}
		return rates[width]
	}
	var longest float64
	for i := range r.Plan.Repositories {
		x := r.repository(ctx, i, measured)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		e.add(x)
		longest = max(longest, x.chain)
		progress(i+1, len(r.Plan.Repositories))
	}
	if w := r.fleet.Workers; w != nil {
		cores := float64(w.Cores)
		e.Hours = max(e.CoreHours/(cores*float64(w.Count)), longest/time.Hour.Seconds()/cores)
		e.Cost = e.CoreHours * w.Price
	}
	return e, nil
}

func (e *Estimate) add(x RepositoryEstimate) {
	e.Repositories = append(e.Repositories, x)
	e.CoreHours += x.CoreSeconds / time.Hour.Seconds()
	e.Checkpoints += x.Checkpoint
	e.Stored += x.Checkpoint
	for _, p := range x.Packages {
		e.packages++
		e.Packages += p.Bytes
		e.Stored += 2 * p.Bytes // weights and package, and codes where a method needs them
		if p.Error != "" {
			e.Refused++
		}
	}
}

// widthRates are the rates of this machine for activations of a width.
type widthRates = func(width int) effort.Rates

// repository predicts one repository.
func (r *Resolved) repository(ctx context.Context, i int, rates widthRates) RepositoryEstimate {
	repo, runs := &r.Plan.Repositories[i], r.Runs[i]
	x := RepositoryEstimate{ID: repo.ID, Shared: map[string]float64{}}
	fail := func(err error) RepositoryEstimate {
		x.Error = err.Error()
		for _, name := range repo.Packages {
			x.Packages = append(x.Packages, PackageEstimate{Name: name, Error: x.Error})
		}
		return x
	}
	sk, err := runs[0].Fetch.Skeleton(ctx, runs[0])
	if err != nil {
		return fail(err)
	}
	x.Commit = sk.Revision
	for _, f := range sk.Files {
		x.Checkpoint += f.Size
	}
	src, err := source.Open(ctx, source.OfSkeleton(sk), runs[0].Recipe.Model.IgnoreConfig)
	if err != nil {
		return fail(err)
	}
	defer src.Close()
	src.Tokenizer = nil // it is large and no longer needed
	for j, run := range runs {
		p, stages := r.packaged(run, src, rates)
		x.Packages = append(x.Packages, p)
		own, waits := 0.0, 0.0
		for _, s := range stages {
			seconds := s.Seconds * float64(r.limit.Threads)
			lead, isShared := r.lead(i, s.Stage, repo.Packages[j])
			switch {
			case isShared && lead:
				x.Shared[s.Stage] += seconds
				x.CoreSeconds += seconds
				waits += seconds
			case isShared:
				waits += seconds
			default:
				x.Packages[j].CoreSeconds[s.Stage] = seconds
				x.CoreSeconds += seconds
				own += seconds
			}
		}
		x.chain = max(x.chain, own+waits)
	}
	return x
}

// lead reports whether a stage of a package is shared, and whether it is counted for this one.
func (r *Resolved) lead(i int, stage, name string) (lead, isShared bool) {
	for _, round := range r.Plan.Repositories[i].Shared {
		for _, s := range round {
			if s.Until == stage && slices.Contains(s.For, name) {
				return s.Lead == name, true
			}
		}
	}
	return false, false
}

// packaged predicts a package.
func (r *Resolved) packaged(run *stage.Run, src *source.Source, rates widthRates) (PackageEstimate, []stage.StageEstimate) {
	p := PackageEstimate{Name: run.Recipe.Name, CoreSeconds: map[string]float64{}}
	run.Rates = rates
	var pl *assemble.Planned
	pl, err := run.Plan(src, nil)
	if err != nil {
		p.Error = err.Error()
		return p, nil
	}
	e, err := run.Estimate(pl, "rewrite")
	if err != nil {
		p.Error = err.Error()
		return p, nil
	}
	p.Bytes, p.Memory = pl.Plan.Bytes()+pl.GraphBytes, e.Memory
	return p, e.Stages
}

// Write prints the estimate as a table of repositories and a summary.
func (e *Estimate) Write(w io.Writer) error {
	s := sheet.New("repository", ">packages", ">checkpoint", ">bytes", ">core-hours", "stages, in core-minutes")
	for _, x := range e.Repositories {
		if x.Error != "" {
			s.Row(x.ID, len(x.Packages), "", "", "", "cannot be made: "+x.Error)
			continue
		}
		var bytes int64
		stages := map[string]float64{}
		for k, v := range x.Shared {
			stages[k] += v
		}
		for _, p := range x.Packages {
			bytes += p.Bytes
			for k, v := range p.CoreSeconds {
				stages[k] += v
			}
		}
		hours := fmt.Sprintf("%.3g", x.CoreSeconds/time.Hour.Seconds())
		s.Row(x.ID, len(x.Packages), sheet.Rounded(x.Checkpoint), sheet.Rounded(bytes), hours, minutes(stages))
	}
	if err := s.Write(w, true); err != nil {
		return err
	}
	for _, x := range e.Repositories {
		for _, p := range x.Packages {
			if p.Error != "" && x.Error == "" {
				if _, err := fmt.Fprintf(w, "\n%s cannot be made: %s\n", sheet.Plain(p.Name), sheet.Plain(p.Error)); err != nil {
					return err
				}
			}
		}
	}
	s = sheet.New()
	s.Row("release", fmt.Sprintf("%s: %d packages of %d repositories", e.Release, e.packages, len(e.Repositories)))
	if e.Refused > 0 {
		s.Row("refused", fmt.Sprintf("%d packages cannot be made", e.Refused))
	}
	s.Row("work", fmt.Sprintf("about %.3g core-hours, as this machine computes; without downloads", e.CoreHours))
	s.Row("download", sheet.Rounded(e.Checkpoints)+", once")
	s.Row("publish", sheet.Rounded(e.Packages)+" to every place")
	s.Row("shared store", "up to "+sheet.Rounded(e.Stored))
	if x := e.workers; x != nil {
		s.Row("time", fmt.Sprintf("%s at best, on %d machines of %d cores", span(e.Hours), x.Count, x.Cores))
		if x.Price > 0 {
			s.Row("cost", fmt.Sprintf("about %.2f: %.3g core-hours at %g", e.Cost, e.CoreHours, x.Price))
		}
	}
	return s.Write(w, false)
}

// minutes lists stages with their core-minutes in the order in which they run, without those that hardly count.
func minutes(stages map[string]float64) string {
	text := ""
	for _, st := range stage.Defaults().Stages() {
		if v := stages[st.String()] / 60; v >= 0.05 {
			text += fmt.Sprintf(", %s %.3g", st.String(), v)
		}
	}
	if text == "" {
		return "less than a minute"
	}
	return text[2:]
}

// span writes hours as a time.
func span(hours float64) string {
	d := time.Duration(hours * float64(time.Hour))
	switch {
	case d < time.Minute:
		return "a minute"
	case d < time.Hour:
		return fmt.Sprintf("%d minutes", int(d.Minutes()+.5))
	case d < 48*time.Hour:
		return fmt.Sprintf("%.1f hours", d.Hours())
	}
	return fmt.Sprintf("%.1f days", d.Hours()/24)
}
