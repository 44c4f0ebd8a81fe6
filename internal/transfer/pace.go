package transfer

import (
	"cmp"
	"fmt"
	"time"
)

const (
	// DefaultMinSpeed is the minimum speed of a transfer in bytes a second.
	DefaultMinSpeed = 1000
	// paceTime is the time over which the speed is measured.
	paceTime = time.Minute
	// fairShare and fairBytes bound the length of a response that ends early: it must have this share of the requested bytes, or
	// this many bytes.
	fairShare = 16
	fairBytes = 1000
)

// pace compares the speed with the minimum. Only time spent waiting for the server counts.
type pace struct {
	least int64 // bytes a second
	got   int64 // bytes
	took  time.Duration
}

func (o Options) pace() *pace { return &pace{least: cmp.Or(o.MinSpeed, DefaultMinSpeed)} }

// add records that receiving n bytes took so long; it returns an error if the minute that they complete was too slow.
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

// fair reports whether n bytes are enough for a response to a request for asked bytes. A server may send fewer than requested,
// but one that always sent a single byte would never finish.
func fair(n, asked int64) bool { return n >= fairBytes || n > 0 && n*fairShare >= asked }
