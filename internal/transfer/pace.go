package transfer

import (
	"cmp"
	"fmt"
	"time"
)

const (
	// DefaultMinSpeed is the least speed of a transfer in bytes a second.
	DefaultMinSpeed = 1000
	// paceTime is the time over which the speed counts.
	paceTime = time.Minute
	// fairShare and fairBytes say what an answer has to bring at least, if it ends early: a part of what was asked for, or so many
	// bytes.
	fairShare = 16
	fairBytes = 1000
)

// pace compares a speed with the least that is accepted. Only the time counts in which a server was waited for.
type pace struct {
	least int64 // bytes a second
	got   int64 // bytes
	took  time.Duration
}

func (o Options) pace() *pace { return &pace{least: cmp.Or(o.MinSpeed, DefaultMinSpeed)} }

// add notes that n bytes took so long; the error says that the minute which they complete brought too few.
func (p *pace) add(n int64, took time.Duration) error {
	p.got += n
	p.took += took
	if p.took < paceTime {
		return nil
	}
	got, seconds := p.got, p.took.Seconds()
	p.got, p.took = 0, 0
	if float64(got) >= float64(p.least)*seconds {
		return nil
	}
	return fmt.Errorf("%d bytes in %.0f s, fewer than %d a second: %w", got, seconds, p.least, errSlow)
}

// fair reports whether n bytes are enough for an answer to a request for so many. A server may give fewer than it is asked for, and
// one that always gives a byte would never be done.
func fair(n, asked int64) bool { return n >= fairBytes || n > 0 && n*fairShare >= asked }
