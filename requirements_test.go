package domicile

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestRequirementsAreShown keeps docs/requirements.md true: each row of its
// table names a requirement, tests that exist and files that exist.
func TestRequirementsAreShown(t *testing.T) {
	text, err := os.ReadFile("docs/requirements.md")
	if err != nil {
		t.Fatal(err)
	}
	exists := testNames(t)
	number := regexp.MustCompile(`^([NTCLMGRBOXI]\d+|3\.\d+\.\d+)\b`)
	named := regexp.MustCompile(`[NTCLMGRBOXI]\d+|3\.\d+\.\d+`)
	quoted := regexp.MustCompile("`([^`]+)`")
	rows, seen, shown := 0, map[string]bool{}, map[string]bool{}
	for _, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !number.MatchString(strings.TrimSpace(cells[1])) {
			continue
		}
		rows++
		req := strings.TrimSpace(cells[1])
		if seen[req] {
			t.Errorf("%s has two rows", req)
		}
		seen[req] = true
		for _, n := range named.FindAllString(req, -1) { // a row may be of several
			shown[n] = true
		}
		tests, files := quoted.FindAllStringSubmatch(cells[3], -1), quoted.FindAllStringSubmatch(cells[4], -1)
		if len(tests) == 0 || len(files) == 0 {
			t.Errorf("%s names no test or no file", req)
		}
		for _, m := range tests {
			if strings.HasPrefix(m[1], "make ") || strings.HasPrefix(m[1], "clients/") {
				continue
			}
			if !exists[m[1]] {
				t.Errorf("%s is said to be shown by %s, which does not exist", req, m[1])
			}
		}
		for _, m := range files {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s is said to be done in %s, which does not exist", req, m[1])
			}
		}
	}
	for _, req := range strings.Fields("G1 G2 G3 G4 G5 G6 G7 G8 G9 G10 G11 M1 M4 M6 R6 L8 3.8.1 3.8.2 3.8.3 3.9.1 3.9.2 3.9.3 3.9.4") {
		if !shown[req] {
			t.Errorf("no row is of %s", req)
		}
	}
	if rows < 20 {
		t.Errorf("docs/requirements.md has %d rows; its table was not understood", rows)
	}
}

// TestArchitectureNamesWhatExists keeps ARCHITECTURE.md true: each test and
// file that it names is there.
func TestArchitectureNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	exists := testNames(t)
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(string(text), -1) {
		name := m[1]
		switch {
		case regexp.MustCompile(`^(Test|Fuzz)[A-Z]\w+$`).MatchString(name):
			if !exists[name] {
				t.Errorf("ARCHITECTURE.md names %s, which does not exist", name)
			}
		case regexp.MustCompile(`^(fsm|proto|controlplane|dataplane|client|cmd|clients|bench|internal|docs)/[\w./]*$`).MatchString(name):
			if _, err := os.Stat(name); err != nil {
				t.Errorf("ARCHITECTURE.md names %s, which does not exist", name)
			}
		}
	}
}

// testNames are the names of all tests, fuzz targets and benchmarks.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	exists := map[string]bool{}
	fn := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	goFiles(t, func(_ string, src []byte) {
		for _, m := range fn.FindAllSubmatch(src, -1) {
			exists[string(m[1])] = true
		}
	})
	return exists
}
