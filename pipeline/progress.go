package pipeline

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/llmexport/llmexport/pipeline/effort"
)

// Progress follows a job for its user: which stage runs, how far it is, and how long the rest may take. Stages are given work in
// advance, see [Progress.Expect]. A stage moves by its reports, and between them by the work that is counted in its context. How
// fast the machine works is corrected by the time that the work has taken so far.
//
// All methods may be called from any goroutine, and on nil, where they do nothing.
type Progress struct {
	show func(State)
	now  func() time.Time

	mu       sync.Mutex
	rates    effort.Rates
	began    time.Time // of the job
	stages   []*stageProgress
	expected map[string][]Step // nil until Expect is called
	at       int               // of the stage at work, or -1
}

// State is how far a job is.
type State struct {
	// Package is the package that the job makes, empty if that goes without saying.
	Package string `json:"package,omitempty"`
	Stage   string `json:"stage"`
	// Number counts the stages from 1 to Of; 0 outside a job.
	Number int `json:"number,omitempty"`
	Of     int `json:"of,omitempty"`
	// What is the part of the stage that Done and Total are about; Total 0 means unknown.
	What  string `json:"what"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"`
	// Fraction of the stage, from 0 to 1. It never falls.
	Fraction float64 `json:"fraction"`
	// Elapsed is the time since the job began; Left and TotalLeft are what the rest of the stage and of the job may take. All are
	// in seconds; -1 means unknown.
	Elapsed   float64 `json:"elapsed_seconds"`
	Left      float64 `json:"left_seconds"`
	TotalLeft float64 `json:"total_left_seconds"`
}

// Step is a part of a stage whose work is predicted.
type Step struct {
	// What is that of the reports of the step.
	What string
	Work effort.Work
	// Counts: the step counts its work in the tally of its context, so that it moves between reports. Such steps follow one another.
	Counts bool
}

// stageProgress is the state of a stage.
type stageProgress struct {
	name         string
	began, ended time.Time // zero if it has not
	tally        *effort.Tally
	counted      float64 // work of the tally that steps have got, in seconds
	worked       float64 // predicted seconds of the work that this job has done
	steps        []*stepProgress
	last         State
}

// stepProgress is the state of a step.
type stepProgress struct {
	what        string
	expected    float64 // seconds at the rates of the job; 0 if unknown
	counts      bool
	fraction    float64
	done, total int64 // units of the last report
}

// NewProgress follows a job; show receives its state whenever something moves, one at a time, and must not call back.
func NewProgress(show func(State)) *Progress { return &Progress{show: show, now: time.Now, at: -1} }

// Begin starts a job of these stages.
func (p *Progress) Begin(stages []string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stages, p.at, p.began = nil, -1, p.now()
	for _, name := range stages {
		s := &stageProgress{name: name, tally: new(effort.Tally)}
		s.expect(p.expected[name], p.rates)
		p.stages = append(p.stages, s)
	}
}

// Expect replaces what the stages will do, by their names, at the rates of the machine. A stage that is not named takes no time.
func (p *Progress) Expect(rates effort.Rates, work map[string][]Step) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rates, p.expected = rates, work
	for _, s := range p.stages {
		s.expect(work[s.name], rates)
	}
}

func (s *stageProgress) expect(steps []Step, rates effort.Rates) {
	for _, x := range s.steps {
		x.expected = 0
	}
	for _, x := range steps {
		t := s.step(x.What)
		t.expected, t.counts = x.Work.Seconds(rates), x.Counts
	}
	s.counted = s.tally.Done().Seconds(rates)
}

// step returns the step of a name, which may be new.
func (s *stageProgress) step(what string) *stepProgress {
	i := slices.IndexFunc(s.steps, func(x *stepProgress) bool { return x.what == what })
	if i < 0 {
		i, s.steps = len(s.steps), append(s.steps, &stepProgress{what: what})
	}
	return s.steps[i]
}

// Enter begins a stage, and returns the tally of its work.
func (p *Progress) Enter(stage string) *effort.Tally {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = slices.IndexFunc(p.stages, func(s *stageProgress) bool { return s.name == stage })
	if p.at < 0 {
		return nil
	}
	s := p.stages[p.at]
	s.began = p.now()
	p.update(s, "")
	return s.tally
}

// Leave ends the stage at work.
func (p *Progress) Leave() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at < 0 {
		return
	}
	s := p.stages[p.at]
	s.count(p.rates)
	s.ended = p.now()
	for _, x := range s.steps {
		x.fraction = 1
	}
	p.update(s, s.last.What)
	p.at = -1
}

// Quit ends the job where it is.
func (p *Progress) Quit() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = -1
}

// Report says that a part of a stage has done so many units of total; total 0 means unknown.
func (p *Progress) Report(stage, what string, done, total int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &stageProgress{name: stage} // outside the job
	if p.at >= 0 && p.stages[p.at].name == stage {
		s = p.stages[p.at]
	}
	s.count(p.rates)
	s.report(what, done, total)
	p.update(s, what)
}

// report takes a report into account.
func (s *stageProgress) report(what string, done, total int64) {
	x := s.step(what)
	for _, t := range s.steps {
		if t == x {
			break
		}
		if t.counts {
			t.fraction = 1
		}
	}
	x.done, x.total = done, total
	if total <= 0 {
		return
	}
	if f := min(1, float64(done)/float64(total)); f > x.fraction {
		if !x.counts { // the results of an earlier run are no work of this one
			s.worked += (f - x.fraction) * x.expected
		}
		x.fraction = f
	}
}

// slowing is the fraction from which a step moves ever more slowly if nothing but counted work moves it: predictions may be too
// small.
const slowing = 0.9

// count gives the work that was counted since the last call to the step that runs.
func (s *stageProgress) count(rates effort.Rates) {
	all := s.tally.Done().Seconds(rates)
	more := all - s.counted
	s.counted = all
	i := slices.IndexFunc(s.steps, func(x *stepProgress) bool { return x.counts && x.fraction < 1 && x.expected > 0 })
	if i < 0 || more <= 0 {
		return
	}
	x := s.steps[i]
	s.worked += more
	more /= x.expected
	straight := min(more, max(0, slowing-x.fraction))
	x.fraction += straight
	if more > straight {
		x.fraction = 1 - (1-x.fraction)*math.Exp(-(more-straight)/(1-slowing))
	}
}

// Tick shows the state again, with the work that was counted meanwhile.
func (p *Progress) Tick() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at >= 0 {
		s := p.stages[p.at]
		s.count(p.rates)
		p.update(s, s.last.What)
	}
}

// split is the predicted time of the work of a stage that is over, and of the rest.
func (s *stageProgress) split() (over, left float64) {
	for _, x := range s.steps {
		over, left = over+x.fraction*x.expected, left+(1-x.fraction)*x.expected
	}
	return over, left
}

// units is the fraction of the units of all steps, for stages whose work is not predicted.
func (s *stageProgress) units() float64 {
	var done, total int64
	for _, x := range s.steps {
		done, total = done+x.done, total+x.total
	}
	return float64(done) / float64(max(total, 1))
}

// waits reports whether the time of the stage is that of a network, which tells nothing of other stages.
func (s *stageProgress) waits() bool { return s.name == "fetch" }

// update shows the state of a stage. The caller holds the lock.
func (p *Progress) update(s *stageProgress, what string) {
	x := State{Stage: s.name, What: what, Left: -1, TotalLeft: -1, Number: slices.Index(p.stages, s) + 1}
	for _, t := range s.steps {
		if t.what == what {
			x.Done, x.Total, x.Fraction = t.done, t.total, t.fraction
		}
	}
	if x.Number > 0 {
		p.time(s, &x)
	}
	s.last = x
	for _, v := range []*float64{&x.Elapsed, &x.Left, &x.TotalLeft} {
		*v = math.Round(*v*1000) / 1000
	}
	p.show(x)
}

const (
	// trust is for how many predicted seconds a prediction counts as much as what was measured; trustShare is that as a share of
	// a stage.
	trust, trustShare = 1.0, 0.02
)

// time fills in the fraction and the times of a stage of the job.
func (p *Progress) time(s *stageProgress, x *State) {
	now := p.now()
	took := now.Sub(s.began).Seconds()
	x.Of, x.Elapsed = len(p.stages), now.Sub(p.began).Seconds()
	over, left := s.split()
	switch {
	case !s.ended.IsZero():
		x.Fraction, x.Left = 1, 0
	case over+left > 0:
		x.Fraction = over / (over + left)
		own := max(trust, trustShare*(over+left))
		x.Left = left * (own*p.pace(s) + took) / (own + s.worked)
	default:
		if x.Fraction = s.units(); x.Fraction > 0 {
			x.Left = took * (1 - x.Fraction) / x.Fraction
		}
	}
	x.Fraction = max(x.Fraction, s.last.Fraction)
	later := 0.0
	for _, t := range p.stages[x.Number:] {
		_, rest := t.split()
		later += rest
	}
	if p.expected != nil && x.Left >= 0 || x.Number == x.Of {
		x.TotalLeft = max(x.Left, 0) + later*p.pace(nil)
	}
}

// pace is how many seconds a predicted second has taken so far, in all stages but one.
func (p *Progress) pace(except *stageProgress) float64 {
	took, worked := trust, trust
	for _, s := range p.stages {
		if s == except || s.waits() || s.began.IsZero() {
			continue
		}
		end := s.ended
		if end.IsZero() {
			end = p.now()
		}
		if s.worked > 0 {
			took, worked = took+end.Sub(s.began).Seconds(), worked+s.worked
		}
	}
	return took / worked
}
