package recipes

import (
	"strings"
)

// unknown returns the error for a key that the mapping at a path does not have.
func (e entry) unknown(path string, known []string) error {
	guess := ""
	if g := Nearest(e.key, known); g != "" {
		guess = "; did you mean " + g + "?"
	}
	return e.at.errorf(joinKey(path, e.key), "unknown key%s (known keys: %s)", guess, strings.Join(known, ", "))
}

// Nearest returns the known word that a misspelt one most likely stands for, or "".
func Nearest(word string, known []string) string {
	best, bestDistance := "", 1+max(1, len(word)/3)
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k), bestDistance); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of neighbours that lead from a to b;
// comparing bytes suffices, because keys are ASCII. It stops early if the lengths alone reach the limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	var before []int // the row before the previous one
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := prev[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(prev[j]+1, row[j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev = prev, row
	}
	return prev[len(b)]
}
