package main

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/llmexport/llmexport/internal/sheet"
)

// progress displays the progress of jobs. It is the only writer of standard error, so that messages and bars do not
// overwrite each other. The zero value displays nothing.
type progress struct {
	mu   sync.Mutex
	w    io.Writer
	mode string

	bars map[string]*mpb.Bar
	box  *mpb.Progress
	last map[string]time.Time
}

// progressInterval is the minimum time between two JSON lines about the same item.
const progressInterval = 100 * time.Millisecond

// start selects the display. Bars need a terminal.
func (p *progress) start(mode string, w io.Writer, terminal bool) error {
	switch mode {
	case "auto", "bar":
		p.mode = "none"
		if terminal {
			p.mode = "bar"
		}
	case "json", "none":
		p.mode = mode
	default:
		return usagef("--progress must be auto, bar, json or none, not %q", mode)
	}
	p.w, p.bars, p.last = w, map[string]*mpb.Bar{}, map[string]time.Time{}
	return nil
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

func (p *progress) report(stage, what string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch key := sheet.Plain(stage + " " + what); p.mode {
	case "bar":
		p.draw(key, done, total)
	case "json":
		now := time.Now()
		if now.Sub(p.last[key]) < progressInterval && (total == 0 || done < total) {
			return
		}
		p.last[key] = now
		b, err := json.Marshal(struct {
			Stage string `json:"stage"`
			What  string `json:"what"`
			Done  int64  `json:"done"`
			Total int64  `json:"total"`
		}{stage, what, done, total})
		if err == nil {
			_, _ = p.w.Write(append(b, '\n'))
		}
	}
}

func (p *progress) draw(key string, done, total int64) {
	if p.box == nil {
		p.box = mpb.New(mpb.WithOutput(p.w), mpb.WithAutoRefresh())
	}
	bar := p.bars[key]
	if bar == nil || !bar.IsRunning() {
		if total > 0 && done >= total {
			return
		}
		bar = p.box.AddBar(total, mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(key, decor.WCSyncSpaceR)),
			mpb.AppendDecorators(decor.Percentage(decor.WCSyncSpace), decor.AverageETA(decor.ET_STYLE_GO, decor.WCSyncSpace)))
		p.bars[key] = bar
	}
	bar.SetCurrent(done)
	bar.SetTotal(total, total > 0 && done >= total)
}

// stop removes the bars; new ones may follow.
func (p *progress) stop() {
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
