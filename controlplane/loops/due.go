package loops

import "domicile/fsm"

// dueUnit is a unit to be looked at when a time has come.
type dueUnit struct {
	at   fsm.Millis
	unit fsm.UnitName
}

// dueHeap orders units by time, then by name.
type dueHeap []dueUnit

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].unit < h[j].unit
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)   { *h = append(*h, x.(dueUnit)) }
func (h *dueHeap) Pop() any {
	old := *h
	d := old[len(old)-1]
	*h = old[:len(old)-1]
	return d
}
