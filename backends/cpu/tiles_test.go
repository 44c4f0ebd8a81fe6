package cpu

import "testing"

// Tiles cover all rows once, begin where the engine's groups do, differ by a group at most, and none but an only one is a single row.
func TestTiles(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 8} {
		for _, share := range []int{32, 108, 256} {
			f := &frame{threads: threads, share: share}
			for rows := range 1200 {
				s := f.tiles(rows)
				least, most := rows, 0
				for i := range s.count {
					from, to := s.begin(i), s.begin(i+1)
					if n := to - from; n == 1 && rows > 1 || from%tileGroup != 0 || n < 1 && rows > 0 {
						t.Fatalf("%d threads, %d each: tile %d of %d has rows %d to %d of %d", threads, share, i, s.count, from, to, rows)
					} else if i < s.count-1 || s.count == 1 {
						least, most = min(least, n), max(most, n)
					} else {
						most = max(most, n)
					}
				}
				if s.begin(0) != 0 || s.begin(s.count) != rows || most > s.most() || s.most() > most+tileGroup || most > least+tileGroup || most > share+2*tileGroup {
					t.Fatalf("%d threads, %d each: %d rows in %d tiles of %d to %d, %d at most", threads, share, rows, s.count, least, most, s.most())
				}
				if rows >= threads*8 && s.count%threads != 0 {
					t.Fatalf("%d threads, %d each: %d rows in %d tiles", threads, share, rows, s.count)
				}
			}
		}
	}
}
