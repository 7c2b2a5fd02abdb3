package proto

import "testing"

func TestNamesOfDirectoriesInHeaders(t *testing.T) {
	for text, want := range map[string]DirectoryName{"c1/global/3": {"c1/global", 3}, "c1/us/18446744073709551615": {"c1/us", 1<<64 - 1}} {
		if got, ok := ParseDirectoryName(text); !ok || got != want || got.String() != text {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "c1", "c1/", "c1/us/x", "/3", "c1/us/-1"} {
		if got, ok := ParseDirectoryName(text); ok {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
	if got, ok := ParseAlso("c1/us 42"); !ok || got != (Also{"c1/us", 42}) || got.String() != "c1/us 42" {
		t.Errorf("%+v, %v", got, ok)
	}
	for _, text := range []string{"", "c1/us", " 42", "c1/us x", "c1/us 4 2"} {
		if got, ok := ParseAlso(text); ok {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}
