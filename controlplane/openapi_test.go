package controlplane

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"domicile/proto"
)

// openapi reads what the tests below compare of the OpenAPI file: "METHOD path
// operationId" of each operation, and the codes.
func openapi(t *testing.T) (operations, codes []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path, method, inCodes := "", "", false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		word := strings.TrimSpace(line)
		switch indent := len(line) - len(strings.TrimLeft(line, " ")); {
		case indent == 2 && strings.HasPrefix(word, "/"):
			path = strings.TrimSuffix(word, ":")
		case indent == 4 && path != "" && slices.Contains([]string{"get:", "put:", "post:", "delete:"}, word):
			method = strings.ToUpper(strings.TrimSuffix(word, ":"))
		case strings.HasPrefix(word, "operationId: "):
			operations = append(operations, method+" "+path+" "+strings.TrimPrefix(word, "operationId: "))
		case line == "    Code:":
			inCodes = true
		case inCodes && strings.HasPrefix(word, "- "):
			code, _, _ := strings.Cut(word[2:], " ")
			codes = append(codes, code)
		}
	}
	return operations, codes
}

// TestTheOpenAPIFileDescribesEveryRouteAndEveryCode (O9) compares it with what
// is served, both ways.
func TestTheOpenAPIFileDescribesEveryRouteAndEveryCode(t *testing.T) {
	described, listed := openapi(t)
	var served, known []string
	for _, r := range new(Server).routes() {
		served = append(served, r.Method+" "+r.Path+" "+r.Name)
	}
	for _, c := range proto.Codes() {
		known = append(known, string(c))
	}
	same(t, "routes", described, served)
	same(t, "codes", listed, known)
}

func same(t *testing.T, what string, described, real []string) {
	t.Helper()
	for _, x := range described {
		if !slices.Contains(real, x) {
			t.Errorf("%s: the file describes %s, which is not there", what, x)
		}
	}
	for _, x := range real {
		if !slices.Contains(described, x) {
			t.Errorf("%s: the file lacks %s", what, x)
		}
	}
}

// TestEveryCodeHasAStatus reads the declared codes from the sources.
func TestEveryCodeHasAStatus(t *testing.T) {
	for _, file := range []string{"../fsm/result.go", "../proto/codes.go"} {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Type == nil || len(spec.Values) != 1 {
				return true
			}
			kind, _ := spec.Type.(*ast.Ident)
			value, _ := spec.Values[0].(*ast.BasicLit)
			if kind == nil || kind.Name != "Code" || value == nil {
				return true
			}
			code, err := strconv.Unquote(value.Value)
			if err != nil || !slices.Contains(proto.Codes(), proto.Code(code)) {
				t.Errorf("%s has no status", value.Value)
			}
			return true
		})
	}
}
