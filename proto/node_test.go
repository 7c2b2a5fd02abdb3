package proto

import "testing"

func TestHoldersOrderByHistoryThenTerm(t *testing.T) {
	order := []Holder{{"c/eu", 1, 1}, {"c/eu", 1, 2}, {"c/eu", 2, 1}, {"c/eu", 10, 1}}
	for i, a := range order {
		for k, b := range order {
			if a.Newer(b) != (i > k) {
				t.Errorf("%v newer than %v: %v", a, b, a.Newer(b))
			}
		}
	}
}

func FuzzParseHolder(f *testing.F) {
	for _, s := range []string{"c/eu 1 2", "c/global 18446744073709551615 0", "", " 1 2", "a 1", "a 1 2 3", "a  1 2", "a -1 2", "a 1 x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHolder(s)
		if err != nil {
			return
		}
		again, err := ParseHolder(h.String())
		if err != nil || again != h {
			t.Errorf("%q is %+v, written again %+v, %v", s, h, again, err)
		}
	})
}
