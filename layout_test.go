package domicile

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// imports says which of our packages each package may import; a package that
// is not listed fails the test. Data flows one way: cmd, then controlplane,
// dataplane and client, then proto, then fsm.
var imports = map[string][]string{
	"":                          {},
	"fsm":                       {},
	"proto":                     {"fsm", "proto/internal/pb"},
	"proto/internal/pb":         {},
	"proto/follow":              {"proto", "fsm"},
	"client":                    {"proto", "fsm"},
	"controlplane/loops":        {"fsm"},
	"controlplane/lease":        {"proto", "fsm", "internal/boottime"},
	"controlplane/stream":       {"proto", "fsm"},
	"controlplane/group":        {"proto", "fsm", "controlplane/stream", "internal/faultpoint", "internal/durable"},
	"controlplane/global":       {"proto", "proto/follow", "fsm", "internal/durable"},
	"controlplane":              {"controlplane/global", "controlplane/loops", "controlplane/loops/balance", "controlplane/group", "controlplane/lease", "controlplane/stream", "proto", "fsm", "client", "internal/audit", "internal/boottime", "internal/faultpoint", "internal/httpserve"},
	"dataplane/node/store":      {"internal/durable"},
	"dataplane/node/replica":    {"dataplane/node/store", "proto", "fsm"},
	"dataplane/node/jsonscan":   {},
	"dataplane/node/lease":      {"proto", "fsm", "internal/boottime"},
	"dataplane/node/hrana":      {"dataplane/node/jsonscan"},
	"dataplane/node":            {"dataplane/node/store", "dataplane/node/hrana", "dataplane/node/jsonscan", "dataplane/node/lease", "dataplane/node/replica", "proto", "fsm", "internal/httpserve", "internal/boottime", "internal/durable"},
	"dataplane/proxy/http1":     {},
	"dataplane/proxy":           {"dataplane/proxy/http1", "proto", "proto/follow", "fsm", "internal/durable"},
	"internal/audit":            {},
	"internal/composefile":      {},
	"internal/boottime":         {},
	"internal/durable":          {},
	"internal/httpserve":        {"proto"},
	"internal/faultpoint":       {},
	"internal/history":          {},
	"internal/leasemodel":       {},
	"internal/leasemodel/walk":  {"internal/leasemodel"},
	"internal/listen":           {"internal/tlsconf"},
	"internal/tlsconf":          {},
	"internal/wait":             {},
	"internal/tlsconf/certtest": {},
	"fsm/fsmtest":               {"fsm"},
	"internal/netfault":         {},
	"internal/testcluster":      {"*"},
	"cmd/domicile":              {"*"},
	"bench":                     {"*"},
	"deploy/demo":               {"internal/composefile"},

	"controlplane/loops/balance": {"fsm"},
}

// onlyIn says in which files or folders (prefixes) a library may be imported.
var onlyIn = map[string][]string{
	"github.com/hashicorp/raft":           {"controlplane/group/raft"},
	"github.com/hashicorp/raft-boltdb/v2": {"controlplane/group/raft"},
	"zombiezen.com/go/sqlite":             {"bench/"},
	"modernc.org/sqlite":                  {"dataplane/node/store/sqlite.go"},
	"modernc.org/libc":                    {"dataplane/node/store/sqlite.go"},
	"github.com/valyala/fasthttp":         {"dataplane/", "bench/"},
}

// pure packages read nothing of the world (architecture: determinism).
var pure = []string{"fsm", "controlplane/loops", "controlplane/loops/balance"}

var impure = []string{"time", "os", "net", "net/http", "math/rand", "math/rand/v2", "crypto/rand", "sync", "sync/atomic", "context", "log", "log/slog", "io/fs", "os/exec", "runtime", "syscall", "hash/maphash"}

var vagueNames = []string{"util", "utils", "common", "helpers", "types", "models", "interfaces", "misc"}

const maxLines = 500

type listed struct {
	ImportPath, Dir, Doc      string
	Imports                   []string
	GoFiles                   []string
	TestGoFiles, XTestGoFiles []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,Imports,GoFiles,TestGoFiles,XTestGoFiles", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestLayoutImports(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, "domicile"), "/")
		allowed, known := imports[name]
		if !known {
			t.Errorf("package %q is not in the import map of layout_test.go: add it with what it may import", name)
			continue
		}
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("package %q has no package comment (doc.go)", name)
		}
		if slices.Contains(vagueNames, path.Base(name)) {
			t.Errorf("package %q: name it for what it does", name)
		}
		for _, i := range p.Imports {
			if own, ok := strings.CutPrefix(i, "domicile/"); ok && !slices.Contains(allowed, own) && !slices.Contains(allowed, "*") {
				t.Errorf("%s imports %s, which the layout forbids", name, own)
			}
			if slices.Contains(pure, name) && slices.Contains(impure, i) {
				t.Errorf("%s is pure and imports %s", name, i)
			}
		}
	}
}

// goFiles calls f for each Go file of ours that is not generated.
func goFiles(t *testing.T, f func(name string, src []byte)) {
	t.Helper()
	err := filepath.WalkDir(".", func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, ".pb.go") {
			return nil
		}
		src, err := os.ReadFile(p)
		if err == nil {
			f(filepath.ToSlash(p), src)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLayoutLibraries(t *testing.T) {
	goFiles(t, func(name string, src []byte) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			lib := strings.Trim(i.Path.Value, `"`)
			for root, places := range onlyIn {
				if lib != root && !strings.HasPrefix(lib, root+"/") {
					continue
				}
				if !slices.ContainsFunc(places, func(at string) bool { return strings.HasPrefix(name, at) }) {
					t.Errorf("%s imports %s; it belongs in %v only", name, lib, places)
				}
			}
		}
	})
}

func TestLayoutFiles(t *testing.T) {
	goFiles(t, func(name string, src []byte) {
		if n := bytes.Count(src, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines; a file is one concern and at most %d", name, n, maxLines)
		}
		if !strings.HasSuffix(name, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Sleep" {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && !bytes.Contains(src, []byte("testing/synctest")) {
					t.Errorf("%s sleeps: wait for a condition, or use fake time", name)
				}
			}
			return true
		})
	})
}
