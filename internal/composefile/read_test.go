package composefile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "compose.yaml")
	for _, c := range []struct {
		name, text string
		good       bool
	}{
		{"merged", "x-p: &p\n  restart: always\n  environment: {A: b}\nservices:\n  s:\n    <<: *p\n    command: [node]\nnetworks:\n  n:\n", true},
		{"an unknown field", "services:\n  s:\n    comand: [node]\n", false},
		{"an empty service", "services:\n  s:\n", false},
		{"no YAML", "services: [", false},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Read(file)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.good {
			if s := f.Services["s"]; s.Restart != "always" || s.Environment["A"] != "b" || s.Command[0] != "node" || len(f.Networks) != 1 {
				t.Errorf("%+v", s)
			}
		}
	}
	if _, err := Read(file + "x"); err == nil {
		t.Error("a file that is not there was read")
	}
}
