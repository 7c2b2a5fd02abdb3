package main

import (
	"fmt"
	"slices"
	"strings"
)

// sample is a figure taken several times.
type sample []float64

func (s sample) sorted() sample {
	c := slices.Clone(s)
	slices.Sort(c)
	return c
}

func (s sample) median() float64 {
	if len(s) == 0 {
		return 0
	}
	c := s.sorted()
	if n := len(c); n%2 == 0 {
		return (c[n/2-1] + c[n/2]) / 2
	}
	return c[len(c)/2]
}

// String is the median with the range.
func (s sample) String() string {
	if len(s) == 0 {
		return "–"
	}
	c := s.sorted()
	return fmt.Sprintf("%s (%s–%s)", short(s.median()), short(c[0]), short(c[len(c)-1]))
}

func short(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// ratio divides round by round, so that both sides met the same machine.
func ratio(a, b sample) (r sample) {
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			r = append(r, a[i]/b[i])
		}
	}
	return r
}

// table prints rows as Markdown.
func table(head []string, rows [][]string) {
	line := func(cells []string) { fmt.Println("| " + strings.Join(cells, " | ") + " |") }
	line(head)
	fmt.Println("|" + strings.Repeat("---|", len(head)))
	for _, r := range rows {
		line(r)
	}
	fmt.Println()
}
