package pipeline

import (
	"math"
	"testing"
	"time"

	"github.com/llmexport/llmexport/pipeline/effort"
)

// course is a job whose clock moves when the test says so.
type course struct {
	*Progress
	t      *testing.T
	clock  time.Time
	states []State
}

func newCourse(t *testing.T) *course {
	c := &course{t: t, clock: time.Unix(1000, 0)}
	c.Progress = NewProgress(func(s State) { c.states = append(c.states, s) })
	c.now = func() time.Time { return c.clock }
	return c
}

func (c *course) last() State { return c.states[len(c.states)-1] }

// pass lets time pass in which a stage counts work.
func (c *course) pass(tally *effort.Tally, seconds float64, work int) State {
	c.clock = c.clock.Add(time.Duration(seconds * float64(time.Second)))
	tally.Add(effort.Product, work)
	c.Tick()
	return c.last()
}

// within demands that a number is near another.
func (c *course) within(what string, got, want, share float64) {
	c.t.Helper()
	if math.Abs(got-want) > share*want {
		c.t.Errorf("%s: %.4g, want %.4g", what, got, want)
	}
}

// unit is a machine that does a thousand operations a second.
var unit = effort.Rates{effort.Product: 1000}

func seconds(s float64) effort.Work { return effort.Of(effort.Product, 1000*s) }

func twoStages() map[string][]Step {
	return map[string][]Step{
		"draw":   {{What: "samples", Work: seconds(20), Counts: true}},
		"encode": {{What: "codes", Work: seconds(70), Counts: true}, {What: "file", Work: seconds(10)}},
	}
}

// A stage moves while it reports nothing, and the pace of the machine corrects what is left of it and of the stages after it.
func TestProgress(t *testing.T) {
	c := newCourse(t)
	c.Expect(unit, twoStages())
	c.Begin([]string{"draw", "encode"})
	tally := c.Enter("draw")
	if s := c.last(); s.Number != 1 || s.Of != 2 || s.Fraction != 0 {
		t.Errorf("began as %+v", s)
	}
	c.within("first estimate", c.last().TotalLeft, 100, .01)
	for range 5 { // half as fast as predicted
		c.pass(tally, 2, 1000)
	}
	c.within("fraction", c.last().Fraction, .25, .01)
	c.within("left of the stage", c.last().Left, 30, .1)
	c.within("left of all", c.last().TotalLeft, 190, .15)
	c.Report("draw", "samples", 20, 20)
	c.Leave()
	if s := c.last(); s.Fraction != 1 || s.Left != 0 {
		t.Errorf("ended as %+v", s)
	}
	tally = c.Enter("encode")
	c.pass(tally, 14, 7000)
	c.within("fraction", c.last().Fraction, 7./80, .01)
	c.within("left of all", c.last().TotalLeft, 146, .25)
	c.Report("encode", "file", 5, 10)
	c.within("codes are over", c.last().Fraction, 75./80, .01)
	c.Leave()
	for i, s := range c.states[1:] {
		if before := c.states[i]; s.Stage == before.Stage && s.Fraction < before.Fraction {
			t.Errorf("state %d falls from %v to %v", i, before.Fraction, s.Fraction)
		}
	}
}

// A prediction that is far too small neither ends a stage early nor lets it stand still.
func TestProgressOfTooLittleWork(t *testing.T) {
	c := newCourse(t)
	c.Expect(unit, map[string][]Step{"draw": {{What: "samples", Work: seconds(10), Counts: true}}})
	c.Begin([]string{"draw"})
	tally, before := c.Enter("draw"), State{}
	for range 15 {
		s := c.pass(tally, 1, 1000)
		if s.Fraction <= before.Fraction || s.Fraction >= 1 {
			t.Errorf("%v after %v", s.Fraction, before.Fraction)
		}
		before = s
	}
}

// What an earlier run has done counts as done, and not as work of this one.
func TestProgressResumes(t *testing.T) {
	c := newCourse(t)
	c.Expect(unit, map[string][]Step{"encode": {{What: "codes", Work: seconds(100), Counts: true}}})
	c.Begin([]string{"encode"})
	tally := c.Enter("encode")
	c.Report("encode", "codes", 80, 100)
	c.within("fraction", c.last().Fraction, .8, .01)
	c.within("left", c.last().Left, 20, .01)
	c.pass(tally, 10, 5000)
	c.within("left of slow work", c.last().Left, 15*2, .2)
}

// Without predictions the units of the reports have to do.
func TestProgressWithoutPredictions(t *testing.T) {
	c := newCourse(t)
	c.Begin([]string{"fetch", "rest"})
	c.Enter("fetch")
	if s := c.last(); s.Left != -1 || s.TotalLeft != -1 {
		t.Errorf("knows how long it takes: %+v", s)
	}
	c.Report("fetch", "a", 0, 30)
	c.Report("fetch", "b", 0, 70)
	c.clock = c.clock.Add(4 * time.Second)
	c.Report("fetch", "a", 20, 30)
	if s := c.last(); s.Fraction != .2 || s.Left != 16 || s.Done != 20 || s.Total != 30 || s.What != "a" || s.TotalLeft != -1 {
		t.Errorf("%+v", s)
	}
	c.Report("pull", "file", 1, 4)
	if s := c.last(); s.Fraction != .25 || s.Number != 0 {
		t.Errorf("outside the job: %+v", s)
	}
}

// Nothing follows a job without progress.
func TestNoProgress(t *testing.T) {
	var p *Progress
	p.Begin([]string{"a"})
	p.Expect(unit, nil)
	p.Report("a", "b", 1, 2)
	p.Tick()
	if p.Enter("a") != nil {
		t.Error("a tally of nothing")
	}
	p.Leave()
}
