package composefile

import (
	"bytes"
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"
)

// File is a Compose file.
type File struct {
	Services map[string]*Service
	Networks map[string]any
	Volumes  map[string]any
	Secrets  map[string]Secret
}

// Service is one process.
type Service struct {
	Image       string
	Build       Build
	Command     []string
	Entrypoint  []string // "": the image's
	Environment map[string]string
	Secrets     []string // mounted as /run/secrets/<name>
	Networks    []string
	Volumes     []string // name:/path
	Ports       []string // [address:]port:port
	Healthcheck Healthcheck
	DependsOn   map[string]Condition `yaml:"depends_on"`
	Restart     string
	StopGrace   string `yaml:"stop_grace_period"`
}

// Build says what an image is made of.
type Build struct{ Context, Dockerfile string }

// Healthcheck is how the engine asks whether a service is well.
type Healthcheck struct {
	Test        []string
	Interval    string
	StartPeriod string `yaml:"start_period"`
}

// Condition is what a service waits for in another.
type Condition struct{ Condition string }

// Secret is a file that services are given.
type Secret struct{ File string }

// Read reads a file. A field of a service that is not known here is an error.
func Read(name string) (*File, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var f struct {
		File `yaml:",inline"`
		Name string
		Rest map[string]any `yaml:",inline"` // x-…
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for n, s := range f.Services {
		if s == nil {
			return nil, fmt.Errorf("%s: service %s is empty", name, n)
		}
	}
	return &f.File, nil
}
