package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline"
)

// progress displays the progress of jobs. It is the only writer of standard error, so that messages and bars do not
// overwrite each other. The zero value displays nothing.
type progress struct {
	mu   sync.Mutex
	w    io.Writer
	mode string
	log  zerolog.Logger // of the lines of mode "log"

	bars map[string]*bar
	box  *mpb.Progress
	last map[string]line

	several bool                          // several packages are made, so that the display names them
	current map[*pipeline.Progress]string // what follows the jobs at work, and the names of their packages
	halt    chan struct{}                 // closed to end the ticks, or nil
	halted  chan struct{}                 // closed when they have ended
}

// bar is a line of the terminal.
type bar struct {
	*mpb.Bar
	text atomic.Pointer[string] // after the bar
}

// line is what was written last about an item.
type line struct {
	at   time.Time
	done int64
}

const (
	// progressInterval is the minimum time between two JSON lines about the same item, idleInterval that of lines with the same
	// number of units.
	progressInterval, idleInterval = 100 * time.Millisecond, time.Second
	// tickInterval is how often the display is refreshed while nothing reports.
	tickInterval = 500 * time.Millisecond
	// logInterval is the time between two messages of a long stage where there is no display, and firstLog the time before the first.
	logInterval, firstLog = 30 * time.Second, 10 * time.Second
	// barUnits is the length of a bar.
	barUnits = 1000
)

// start selects the display. Bars need a terminal; without one, a message appears now and then.
func (p *progress) start(mode string, w io.Writer, terminal bool) error {
	switch mode {
	case "auto":
		p.mode = "log"
		if terminal {
			p.mode = "bar"
		}
	case "bar":
		p.mode = "none"
		if terminal {
			p.mode = "bar"
		}
	case "json", "none":
		p.mode = mode
	default:
		return exit.Usagef("--progress must be auto, bar, json or none, not %q", mode)
	}
	p.w, p.bars, p.last, p.log = w, map[string]*bar{}, map[string]line{}, zerolog.Nop()
	p.current = map[*pipeline.Progress]string{}
	return nil
}

// packages tells the display how many packages are made.
func (p *progress) packages(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.several = n > 1
}

// follow returns what follows the job of a package, or another if name is empty, for the display. The display is refreshed
// from the first state of the job until leave or stop.
func (p *progress) follow(name string) (x *pipeline.Progress) {
	x = pipeline.NewProgress(func(s pipeline.State) {
		p.mu.Lock()
		if p.several {
			s.Package = name
		}
		if p.current[x] = s.Package; p.halt == nil {
			p.halt, p.halted = make(chan struct{}), make(chan struct{})
			go p.tick(p.halt, p.halted)
		}
		p.mu.Unlock()
		p.show(s)
	})
	return x
}

// tick refreshes the display until halt is closed.
func (p *progress) tick(halt <-chan struct{}, halted chan<- struct{}) {
	defer close(halted)
	t := time.NewTicker(tickInterval)
	defer t.Stop()
	for {
		select {
		case <-halt:
			return
		case <-t.C:
		}
		p.mu.Lock()
		all := slices.Collect(maps.Keys(p.current))
		p.mu.Unlock()
		for _, x := range all {
			x.Tick()
		}
	}
}

// Write prints a message above the bars.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.box != nil {
		if n, err := p.box.Write(b); err == nil {
			return n, nil
		}
	}
	return p.w.Write(b)
}

// report displays the progress of work outside a job.
func (p *progress) report(stage, what string, done, total int64) {
	s := pipeline.State{Stage: stage, What: what, Done: done, Total: total, Left: -1, TotalLeft: -1}
	if total > 0 {
		s.Fraction = float64(done) / float64(total)
	}
	p.show(s)
}

// show displays the state of a job.
func (p *progress) show(s pipeline.State) {
	s.Package, s.Stage, s.What = sheet.Plain(s.Package), sheet.Plain(s.Stage), sheet.Plain(s.What)
	key := s.Package + " " + s.Stage + " " + s.What
	p.mu.Lock()
	var message func()
	switch p.mode {
	case "bar":
		p.draw(s)
	case "json":
		p.write(key, s)
	case "log":
		message = p.message(s)
	}
	p.mu.Unlock()
	if message != nil {
		message() // it calls Write
	}
}

// write writes a JSON line, unless one about the same was written just now.
func (p *progress) write(key string, s pipeline.State) {
	now, last := time.Now(), p.last[key]
	interval := progressInterval
	if s.Done == last.done {
		interval = idleInterval
	}
	if end := s.Total > 0 && s.Done >= s.Total && s.Done != last.done; now.Sub(last.at) < interval && !end && s.Fraction < 1 {
		return
	}
	p.last[key] = line{now, s.Done}
	if b, err := json.Marshal(s); err == nil {
		_, _ = p.w.Write(append(b, '\n'))
	}
}

// message returns the message about a stage of a job if one is due.
func (p *progress) message(s pipeline.State) func() {
	if s.Number == 0 {
		return nil
	}
	now := time.Now()
	last, ok := p.last[s.Package]
	if !ok {
		p.last[s.Package] = line{at: now.Add(firstLog - logInterval)}
		return nil
	}
	if now.Sub(last.at) < logInterval {
		return nil
	}
	p.last[s.Package] = line{at: now}
	return func() {
		e := p.log.Info()
		if s.Package != "" {
			e = e.Str("package", s.Package)
		}
		e = e.Str("stage", s.Stage).Str("of", fmt.Sprintf("%d/%d", s.Number, s.Of)).Str("done", percent(s.Fraction)).
			Str("elapsed", span(s.Elapsed))
		if s.Left >= 0 {
			e = e.Str("left", span(s.Left))
		}
		if s.TotalLeft >= 0 {
			e = e.Str("total_left", span(s.TotalLeft))
		}
		e.Msg("in progress")
	}
}

// draw moves the bar of a stage, or of one of the files of the stage that fetches them.
func (p *progress) draw(s pipeline.State) {
	if p.box == nil {
		p.box = mpb.New(mpb.WithOutput(p.w), mpb.WithAutoRefresh())
	}
	key, name := s.Stage, s.Stage
	if s.Number > 0 {
		name = fmt.Sprintf("%d/%d %s", s.Number, s.Of, s.Stage)
	}
	if s.Number == 0 || s.Stage == "fetch" && s.What != "" {
		key, name = s.Stage+" "+s.What, name+" "+s.What
	}
	if s.Package != "" {
		key, name = barKey(s.Package, key), s.Package+" "+name
	}
	b := p.bars[key]
	if b == nil || !b.IsRunning() {
		if s.Fraction >= 1 {
			return
		}
		b = &bar{}
		b.text.Store(new(string))
		b.Bar = p.box.AddBar(barUnits, mpb.BarRemoveOnComplete(), mpb.PrependDecorators(decor.Name(name, decor.WCSyncSpaceR)),
			mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return *b.text.Load() })))
		p.bars[key] = b
	}
	fraction := s.Fraction
	if s.Stage == "fetch" && s.Total > 0 {
		fraction = float64(s.Done) / float64(s.Total)
	}
	text := times(s, fraction)
	b.text.Store(&text)
	b.SetCurrent(int64(fraction * barUnits))
	b.SetTotal(barUnits, fraction >= 1)
}

// times is the text after a bar.
func times(s pipeline.State, fraction float64) string {
	text := percent(fraction)
	if s.Number > 0 {
		text += "  " + span(s.Elapsed)
	}
	if s.Left >= 0 {
		text += ", " + span(s.Left) + " left"
	}
	if s.TotalLeft >= 0 && s.Number < s.Of {
		text += ", " + span(s.TotalLeft) + " in all"
	}
	return text
}

// percent rounds down: 100 % means the end.
func percent(fraction float64) string { return fmt.Sprintf("%d %%", int(100*fraction)) }

// span is a number of seconds as people say it: two units at most.
func span(seconds float64) string {
	n := int64(math.Round(max(0, seconds)))
	switch {
	case n < 60:
		return fmt.Sprintf("%ds", n)
	case n < 10*60:
		return fmt.Sprintf("%dm%02ds", n/60, n%60)
	case n < 3600:
		return fmt.Sprintf("%dm", (n+30)/60)
	case n < 48*3600:
		n = (n + 30) / 60
		return fmt.Sprintf("%dh%02dm", n/60, n%60)
	}
	n = (n + 1800) / 3600
	return fmt.Sprintf("%dd%dh", n/24, n%24)
}

// barKey is the key of the bar of a package.
func barKey(name, key string) string { return name + "\x00" + key }

// leave ends the display of one job; those of others stay.
func (p *progress) leave(x *pipeline.Progress) {
	p.mu.Lock()
	name, shown := p.current[x]
	delete(p.current, x)
	for key, b := range p.bars {
		if shown && name != "" && strings.HasPrefix(key, barKey(name, "")) {
			b.Abort(true)
			delete(p.bars, key)
		}
	}
	last := len(p.current) == 0
	p.mu.Unlock()
	if last {
		p.stop()
	}
}

// stop removes the bars; new ones may follow.
func (p *progress) stop() {
	p.mu.Lock()
	halt, halted := p.halt, p.halted
	p.halt = nil
	clear(p.current)
	p.mu.Unlock()
	if halt != nil {
		close(halt)
		<-halted
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.box == nil {
		return
	}
	for _, b := range p.bars {
		b.Abort(true)
	}
	p.box.Wait()
	p.box = nil
	clear(p.bars)
}
