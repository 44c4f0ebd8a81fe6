//go:build amd64 && !purego

package kernel

import "testing"

func (l *attentionLanes) guard(t *testing.T) {
	l.q, l.mixed, l.alone, l.mask = guardedCap(t, l.q), guardedCap(t, l.mixed), guardedCap(t, l.alone), guardedCap(t, l.mask)
}
