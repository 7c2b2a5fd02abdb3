package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestUnitsStartWhatTheySay: the command of each systemd unit, with the
// variables that deploy/README.md names for it, is one that the program takes.
func TestUnitsStartWhatTheySay(t *testing.T) {
	readme, err := os.ReadFile("../../deploy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(units) != 3 {
		t.Fatalf("units: %v %v", units, err)
	}
	for _, file := range units {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/domicile (.*)$`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("%s starts no domicile", file)
		}
		args := append(strings.Fields(string(m[1])), "--help")
		var out bytes.Buffer
		if code := run(context.Background(), args, &env{stdout: &out, stderr: &out}); code != 0 {
			t.Fatalf("%s: domicile %s: status %d\n%s", file, strings.Join(args, " "), code, out.String())
		}
		row := regexp.MustCompile("(?m)^\\| `" + filepath.Base(file) + "` .*$").Find(readme)
		names := regexp.MustCompile(`DOMICILE_[A-Z_]*[A-Z]`).FindAll(row, -1)
		if len(names) < 3 {
			t.Errorf("deploy/README.md names no variables for %s", file)
		}
		for _, n := range names {
			if string(n) != "DOMICILE_TLS" && !strings.Contains(out.String(), "$"+string(n)) {
				t.Errorf("deploy/README.md: %s has no variable %s", file, n)
			}
		}
	}
}
