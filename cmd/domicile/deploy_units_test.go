package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"domicile/internal/testcluster"
)

// systemdExec is a unit's command line and variables, with its specifiers and its file of
// variables filled in for a host.
func systemdExec(t *testing.T, kind, instance, envFile, host string) (args []string, variables map[string]string) {
	t.Helper()
	text, err := os.ReadFile(deployDir + "/systemd/domicile-" + kind + "@.service")
	if err != nil {
		t.Fatal(err)
	}
	variables = map[string]string{"STATE_DIRECTORY": "/var/lib/domicile/" + kind + "-" + instance}
	set := func(fields string) {
		for f := range strings.FieldsSeq(fields) {
			name, value, _ := strings.Cut(f, "=")
			variables[name] = value
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^Environment=(.*)$`).FindAllSubmatch(text, -1) {
		set(string(m[1]))
	}
	if envFile != "" {
		file, err := os.ReadFile(deployDir + "/systemd/etc/" + envFile)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(file)) {
			if !strings.HasPrefix(line, "#") {
				set(line)
			}
		}
		if want := "EnvironmentFile=/etc/domicile/" + kind + "-%i.env\n"; !strings.Contains(string(text), want) {
			t.Errorf("unit of %s: no %s", kind, want)
		}
	}
	m := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/domicile (.*)$`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("the unit of %s starts no domicile", kind)
	}
	line := strings.NewReplacer("%l", host, "%i", instance).Replace(string(m[1]))
	line = os.Expand(line, func(name string) string {
		if variables[name] == "" {
			t.Errorf("the unit of %s uses %s, which is not set", kind, name)
		}
		return variables[name]
	})
	return strings.Fields(line), variables
}

// TestTheUnitsStartTheSameDeployment as the Compose file, on machines of their own: eu-c1 and
// so on, with certificates.
func TestTheUnitsStartTheSameDeployment(t *testing.T) {
	var all []deployed
	add := func(host, kind, instance, envFile, region string) {
		t.Run(host+" "+kind, func(t *testing.T) {
			args, variables := systemdExec(t, kind, instance, envFile, host)
			p := deployed{host: host, kind: kind, region: region, flags: parsed(t, args, variables)}
			for _, f := range []tlsFlags{p.flags.Control.tlsFlags, p.flags.Node.tlsFlags, p.flags.Proxy.tlsFlags} {
				if f.Insecure {
					t.Error("it listens without TLS")
				}
			}
			all = append(all, p)
		})
	}
	for i, r := range deployedRegions {
		global := "control-global.env"
		if i == 0 {
			global = "control-global-first.env"
		}
		add(r+"-c1", "control", "global", global, "")
		add(r+"-c1", "control", r, "control-"+r+"-first.env", r)
		add(r+"-c2", "control", r, "control-"+r+".env", r)
		add(r+"-c3", "control", r, "control-"+r+".env", r)
		for _, p := range []string{"-p1", "-p2"} {
			add(r+p, "proxy", r, "proxy-"+r+".env", r)
		}
		for _, n := range []string{"-n1", "-n2", "-n3", "-n4"} {
			add(r+n, "node", r, "", r)
		}
	}
	checkDeployed(t, "https", all)
	files, _ := filepath.Glob(deployDir + "/systemd/etc/*")
	if len(files) != 2+3*3 {
		t.Errorf("deploy/systemd/etc has %v", files)
	}
}

// TestUnitsAreTakenBySystemd asks systemd-analyze, where there is one.
func TestUnitsAreTakenBySystemd(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skipf("no systemd-analyze here: %v", err)
	}
	units, _ := filepath.Glob(deployDir + "/systemd/*.service")
	if len(units) != 3 {
		t.Fatalf("units: %v", units)
	}
	dir := t.TempDir()
	for _, file := range units {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		mine := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(mine, []byte(strings.ReplaceAll(string(text), "/usr/local/bin/domicile", testcluster.Binary())), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("systemd-analyze", "verify", "--man=no", mine).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}
