package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxRange bounds the numbers that parseRanges takes.
const maxRange = 1 << 16

// parseRanges reads numbers such as "3,5-7", in any order, and returns them ascending.
func parseRanges(text string) ([]int, error) {
	var list []int
	for _, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, err := strconv.ParseUint(from, 10, 16)
		b, errTo := strconv.ParseUint(to, 10, 16)
		if err != nil || errTo != nil || b < a {
			return nil, fmt.Errorf("%q is neither a number nor a range such as 3-5", part)
		}
		for i := a; i <= b; i++ {
			list = append(list, int(i))
		}
		if len(list) > maxRange {
			return nil, fmt.Errorf("more than %d numbers", maxRange)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// ranges formats ascending numbers as "3, 5-7".
func ranges(list []int) string {
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if j > i {
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[j]))
		} else {
			parts = append(parts, fmt.Sprint(list[i]))
		}
		i = j + 1
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
