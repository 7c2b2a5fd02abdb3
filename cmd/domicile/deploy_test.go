package main

import (
	"context"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"domicile/internal/composefile"
)

const deployDir = "../../deploy"

// parsed reads a command line and variables as the program does, without running it. Each
// variable must be one of the command's.
func parsed(t *testing.T, args []string, variables map[string]string) (c cli) {
	t.Helper()
	for name, value := range variables {
		t.Setenv(name, value)
	}
	parser := newParser(context.Background(), &c, &env{stdout: io.Discard, stderr: io.Discard})
	got, err := parser.Parse(args)
	if err != nil {
		t.Fatalf("domicile %s: %v", strings.Join(args, " "), err)
	}
	known := map[string]bool{}
	for _, f := range got.Path[1].Command.Flags {
		for _, e := range f.Envs {
			known[e] = true
		}
	}
	for name := range variables {
		if strings.HasPrefix(name, "DOMICILE_") && !known[name] {
			t.Errorf("domicile %s has no variable %s", args[0], name)
		}
	}
	return c
}

// deployed is one process of the deployment of three regions, in whatever it is packed.
type deployed struct {
	host, kind, region string
	flags              cli
}

var deployedRegions = []string{"eu", "us", "tr"}

// listen is the process's address: where it listens, on whatever interface.
func (p deployed) listen() string {
	listen := map[string]string{"control": p.flags.Control.Listen, "node": p.flags.Node.Listen, "proxy": p.flags.Proxy.Listen}[p.kind]
	_, port, _ := strings.Cut(listen, ":")
	return p.host + ":" + port
}

// checkDeployed holds the processes against each other: there are as many as there should
// be, and every address that one is given is one where another listens, of the group that
// is meant.
func checkDeployed(t *testing.T, scheme string, all []deployed) {
	t.Helper()
	count := map[string]int{}
	at := map[string]deployed{}
	for _, p := range all {
		count[p.kind+" "+p.region]++
		if at[p.listen()].kind != "" {
			t.Errorf("two processes listen at %s", p.listen())
		}
		at[p.listen()] = p
	}
	want := map[string]int{"control ": 3}
	for _, r := range deployedRegions {
		want["control "+r], want["proxy "+r], want["node "+r] = 3, 2, 4
	}
	if !maps.Equal(count, want) {
		t.Errorf("there are %v, want %v", count, want)
	}
	controls := func(p deployed, what, region string, urls ...string) {
		t.Helper()
		for _, text := range urls {
			u, err := url.Parse(text)
			if err != nil || u.Scheme != scheme || at[u.Host].kind != "control" || at[u.Host].region != region {
				t.Errorf("%s %s: %s %s is no control server of %q", p.kind, p.host, what, text, region)
			}
		}
	}
	first := map[string]int{}
	for _, p := range all {
		switch p.kind {
		case "control":
			checkControl(t, p, controls)
			if p.flags.Control.Bootstrap {
				first[p.region]++
			}
		case "proxy":
			x := p.flags.Proxy
			controls(p, "--control", p.region, x.Control...)
			if len(x.Control) != 3 || x.Region != p.region || x.Cache == "" {
				t.Errorf("%s: %+v", p.host, x)
			}
			secretFiles(t, p, x.Token, x.TokenFile, x.SharedSecret, x.SharedSecretFile)
		case "node":
			n := p.flags.Node
			if !n.Lease {
				t.Errorf("%s takes no lease: nothing of it fails over", p.host)
			}
			secretFiles(t, p, n.AdminToken, n.AdminTokenFile, n.HTTPToken, n.HTTPTokenFile, n.ReplicationToken, n.ReplicationTokenFile)
		}
	}
	if want := map[string]int{"": 1, "eu": 1, "us": 1, "tr": 1}; !maps.Equal(first, want) {
		t.Errorf("groups are begun by so many servers: %v", first)
	}
}

func checkControl(t *testing.T, p deployed, controls func(p deployed, what, region string, urls ...string)) {
	t.Helper()
	c := p.flags.Control
	controls(p, "--join", p.region, c.Join...)
	controls(p, "--global", "", c.Global...)
	controls(p, "--advertise", p.region, c.Advertise)
	if c.Region != p.region || (len(c.Global) == 3) != (p.region != "") {
		t.Errorf("%s is of region %q and follows %v", p.host, c.Region, c.Global)
	}
	if c.Bootstrap == (len(c.Join) > 0) {
		t.Errorf("%s begins a group or joins one: %v, %v", p.host, c.Bootstrap, c.Join)
	}
	_, raft, _ := strings.Cut(c.RaftListen, ":")
	if c.RaftAdvertise != p.host+":"+raft || !strings.HasSuffix(c.Advertise, "://"+p.listen()) {
		t.Errorf("%s tells the others %s and %s", p.host, c.RaftAdvertise, c.Advertise)
	}
	if c.ID != p.host { // so that no two of a group have one name
		t.Errorf("%s is called %s", p.host, c.ID)
	}
	secretFiles(t, p, c.Token, c.TokenFile, c.ReplicationToken, c.ReplicationTokenFile, c.SharedSecret, c.SharedSecretFile)
}

// secretFiles takes pairs: a secret, which must not be given, and the file of it, which must.
func secretFiles(t *testing.T, p deployed, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] != "" || pairs[i+1] == "" {
			t.Errorf("%s %s: a secret is not given by its file (%q)", p.kind, p.host, pairs[i+1])
		}
	}
}

var deployedName = regexp.MustCompile(`^(?:(eu|us|tr)-([cnp])[1-4]|global-(?:eu|us|tr))$`)

// TestTheComposeFileStartsADeployment: each command is one that the program takes, with its
// variables, and what the services are told of each other is so.
func TestTheComposeFileStartsADeployment(t *testing.T) {
	f, err := composefile.Read(deployDir + "/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []deployed
	for name, s := range f.Services {
		t.Run(name, func(t *testing.T) {
			checkService(t, f, s)
			if name == "setup" {
				return
			}
			m := deployedName.FindStringSubmatch(name)
			if m == nil {
				t.Fatal("a name that says neither region nor kind")
			}
			p := deployed{host: name, region: m[1], kind: s.Command[0], flags: parsed(t, s.Command, s.Environment)}
			all = append(all, p)
			if kind := map[string]string{"c": "control", "n": "node", "p": "proxy", "": "control"}[m[2]]; kind != p.kind {
				t.Errorf("it runs domicile %s", p.kind)
			}
			_, port, _ := strings.Cut(p.listen(), ":")
			if !slices.Equal(s.Healthcheck.Test, []string{"CMD", "wget", "-q", "-O", "/dev/null", "http://127.0.0.1:" + port + "/_ready"}) {
				t.Errorf("it listens at %s and is asked by %q", port, s.Healthcheck.Test)
			}
			for _, published := range s.Ports {
				if !strings.HasPrefix(published, "127.0.0.1:") || !strings.HasSuffix(published, ":"+port) {
					t.Errorf("it listens at %s and publishes %s", port, published)
				}
			}
			if region := strings.TrimPrefix(name, "global-")[:2]; !slices.Equal(s.Networks, []string{region, "wan"}) {
				t.Errorf("its networks are %v", s.Networks)
			}
			if !slices.Equal(s.Volumes, []string{name + ":/data"}) {
				t.Errorf("its volumes are %v", s.Volumes)
			}
		})
	}
	checkDeployed(t, "http", all)
}

// checkService: what a service names is in the file, and what it is given a file of, too.
func checkService(t *testing.T, f *composefile.File, s *composefile.Service) {
	t.Helper()
	for _, n := range s.Networks {
		if _, ok := f.Networks[n]; !ok {
			t.Errorf("there is no network %s", n)
		}
	}
	for _, v := range s.Volumes {
		name, _, _ := strings.Cut(v, ":")
		if _, ok := f.Volumes[name]; !ok {
			t.Errorf("there is no volume %s", name)
		}
	}
	for _, secret := range s.Secrets {
		if f.Secrets[secret].File != "secrets/"+secret {
			t.Errorf("there is no secret %s", secret)
		}
	}
	for variable, value := range s.Environment {
		if secret, ok := strings.CutPrefix(value, "/run/secrets/"); ok && !slices.Contains(s.Secrets, secret) {
			t.Errorf("%s names a secret that it is not given", variable)
		}
	}
	for other := range s.DependsOn {
		if f.Services[other] == nil {
			t.Errorf("there is no service %s", other)
		}
	}
	if s.Build.Dockerfile != "deploy/Containerfile" || s.Build.Context != ".." {
		t.Errorf("it is built of %+v", s.Build)
	}
}

// TestDeploySetupRecordsWhatThereIs runs deploy/setup with a program in domicile's place that notes
// what it is called with: the program takes each call, and each names a process that there is.
func TestDeploySetupRecordsWhatThereIs(t *testing.T) {
	f, err := composefile.Read(deployDir + "/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	stub := "#!/bin/sh\nprintf '%s\\n' \"$*\" >>" + calls + "\n"
	if err := os.WriteFile(filepath.Join(dir, "domicile"), []byte(stub), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", deployDir+"/setup")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "NODE_TOKEN_FILE=node-token")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	zones := map[string]int{}
	routers := 0
	for line := range strings.Lines(string(text)) {
		c := parsed(t, strings.Fields(line), nil)
		put, region := c.Admin.Nodes.Put, c.Admin.Regions.Put
		switch {
		case put.Name != "":
			s := f.Services[string(put.Name)]
			if s == nil || s.Command[0] != "node" || *put.Addr != "http://"+string(put.Name)+":8081" || !strings.HasPrefix(string(put.Name), string(*put.Region)+"-") {
				t.Errorf("%s: there is no such node", line)
			}
			zones[string(*put.Region)+" "+string(*put.Zone)]++
		case region.Name != "":
			for _, r := range region.Routers {
				u, err := url.Parse(r)
				if err != nil || u.Port() != "8090" || f.Services[u.Hostname()] == nil || !strings.HasPrefix(u.Hostname(), string(region.Name)+"-p") {
					t.Errorf("%s: %s is no proxy of it", line, r)
				}
				routers++
			}
		default:
			t.Errorf("%s: this records nothing", line)
		}
	}
	want := map[string]int{"eu eu-a": 2, "eu eu-b": 2, "us us-a": 2, "us us-b": 2, "tr tr-a": 2, "tr tr-b": 2}
	if !maps.Equal(zones, want) || routers != 6 {
		t.Errorf("nodes by zone: %v; %d routers", zones, routers)
	}
	s := f.Services["setup"]
	if parsed(t, []string{"admin", "nodes"}, map[string]string{"DOMICILE_SERVER": s.Environment["DOMICILE_SERVER"], "DOMICILE_TOKEN_FILE": s.Environment["DOMICILE_TOKEN_FILE"]}); s.Environment["NODE_TOKEN_FILE"] == "" {
		t.Error("the service setup gives no token of nodes")
	}
}

// TestTheImageHasWhatTheComposeFileRuns: the program and the script, built by the Go that go.mod
// asks for.
func TestTheImageHasWhatTheComposeFileRuns(t *testing.T) {
	text, err := os.ReadFile(deployDir + "/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)
	for _, want := range []string{
		"golang:" + string(version[1]) + "-",
		"COPY --from=build /src/bin/domicile /usr/local/bin/domicile\n",
		"COPY deploy/setup /usr/local/bin/domicile-setup\n",
		"ENTRYPOINT [\"/usr/local/bin/domicile\"]\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("deploy/Containerfile has no %q", want)
		}
	}
}

// TestDeploySecretsAreMadeOnce: each secret of the Compose file, none that is there anew, in a folder that
// nobody else opens.
func TestDeploySecretsAreMadeOnce(t *testing.T) {
	f, err := composefile.Read(deployDir + "/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kept := "kept as it is"
	if err := os.WriteFile(filepath.Join(dir, "node-token"), []byte(kept), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sh", deployDir+"/secrets/make", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v %v", info.Mode(), err)
	}
	seen := map[string]bool{}
	for name := range f.Secrets {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || seen[string(text)] || name == "node-token" != (string(text) == kept) || name != "node-token" && len(text) != 48 {
			t.Errorf("%s: %q %v", name, text, err)
		}
		seen[string(text)] = true
	}
}
