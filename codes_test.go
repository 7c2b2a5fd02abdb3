package domicile

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// codesOf are the codes of error answers that the sources of folders can give: they are
// found where they are written, as literals and by the names of proto and fsm.
func codesOf(t *testing.T, folders ...string) map[string]bool {
	t.Helper()
	named := namedCodes(t)
	found := map[string]bool{}
	add := func(e ast.Expr) {
		if s, ok := literal(e); ok && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_") == "" && s != "" {
			found[s] = true
		}
	}
	for _, file := range sourcesOf(t, folders) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if code, ok := named[n.Sel.Name]; ok {
					found[code] = true
				}
			case *ast.ValueSpec:
				if strings.HasPrefix(strings.ToLower(n.Names[0].Name), "code") && len(n.Values) == 1 {
					add(n.Values[0])
				}
				if n.Names[0].Name == "refusals" { // the node's table of the engine's errors
					for _, row := range n.Values[0].(*ast.CompositeLit).Elts {
						add(row.(*ast.CompositeLit).Elts[2])
					}
				}
			case *ast.AssignStmt:
				if to, ok := n.Lhs[0].(*ast.Ident); ok && to.Name == "code" && len(n.Rhs) == 1 {
					add(n.Rhs[0])
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Code" {
					add(n.Value)
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && (f.Sel.Name == "Errorf" || f.Sel.Name == "Respond") && len(n.Args) > 2 {
					add(n.Args[1])
				}
			case *ast.CompositeLit:
				if kind, ok := n.Type.(*ast.Ident); ok && kind.Name == "reject" && len(n.Elts) == 3 {
					add(n.Elts[1])
				}
			}
			return true
		})
	}
	return found
}

func literal(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(l.Value)
	return s, err == nil
}

// namedCodes are the constants of proto and fsm that stand for a code.
func namedCodes(t *testing.T) map[string]string {
	t.Helper()
	named := map[string]string{}
	for _, file := range sourcesOf(t, []string{"fsm", "proto"}) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Code") || len(spec.Values) != 1 {
				return true
			}
			if code, ok := literal(spec.Values[0]); ok {
				named[spec.Names[0].Name] = code
			}
			return true
		})
	}
	named["CodeBadRequest"] = "bad_request"
	return named
}

func sourcesOf(t *testing.T, folders []string) []*ast.File {
	t.Helper()
	var files []*ast.File
	for _, folder := range folders {
		names, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: no sources, %v", folder, err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
	}
	return files
}

// listedCodes reads an enum of the OpenAPI file.
func listedCodes(t *testing.T, schema string) []string {
	t.Helper()
	text, err := os.ReadFile("docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n    "+schema+":\n")
	if !ok {
		t.Fatalf("docs/openapi.yaml has no %s", schema)
	}
	var codes []string
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "      ") {
			break
		}
		if code, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok {
			code, _, _ = strings.Cut(code, " ")
			codes = append(codes, code)
		}
	}
	return codes
}

// TestO9CodesOfNodesAndProxiesAreListed compares the OpenAPI file with the sources, both
// ways, and asks the application developer's page for what clients of tenants can see.
// SQLite's own codes, SQLITE_…, are described as a whole.
func TestO9CodesOfNodesAndProxiesAreListed(t *testing.T) {
	page, err := os.ReadFile("docs/data-api.md")
	if err != nil {
		t.Fatal(err)
	}
	admin := []string{ // of /_admin/, /_ready and what no client is told
		"holder_required", "holder_newer", "unit_exists", "wrong_unit_id", "wrong_state", "job_conflict", "in_use",
		"takes_no_lease", "bad_image", "stale_call", "stale_grant", "list_not_held", "epoch_passed", "needs_image", "promised", "upgrade_required",
		"loop_detected", "unknown_bucket", "bucket_required",
	}
	for schema, folders := range map[string][]string{
		"NodeCode":  {"dataplane/node", "dataplane/node/hrana"},
		"ProxyCode": {"dataplane/proxy", "dataplane/proxy/http1"},
	} {
		real, listed := codesOf(t, folders...), listedCodes(t, schema)
		for code := range real {
			if strings.HasPrefix(code, "SQLITE_") {
				continue
			}
			if !slices.Contains(listed, code) {
				t.Errorf("%s lacks %s", schema, code)
			}
			if !slices.Contains(admin, code) && !strings.Contains(string(page), "`"+code+"`") {
				t.Errorf("docs/data-api.md lacks %s of %v", code, folders)
			}
		}
		for _, code := range listed {
			if !real[code] {
				t.Errorf("%s lists %s, which nothing gives", schema, code)
			}
		}
	}
}
