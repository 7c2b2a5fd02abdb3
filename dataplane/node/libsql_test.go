package node

import (
	"database/sql"
	"os"
	"os/exec"
	"testing"

	_ "github.com/tursodatabase/libsql-client-go/libsql" // the driver
)

// TestX2LibsqlClientGoOwnTests runs the Go client's own HTTP tests against a node.
func TestX2LibsqlClientGoOwnTests(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command")
	}
	n := startNode(t, nil)
	n.create("acme", 1)
	cmd := exec.CommandContext(t.Context(), goTool, "test", "-count=1", "github.com/tursodatabase/libsql-client-go/tests/http")
	cmd.Env = append(os.Environ(), "LIBSQL_TEST_HTTP_DB_URL="+n.url+"/t/acme/db")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestX2LibsqlClientGo uses the client as an application does.
func TestX2LibsqlClientGo(t *testing.T) {
	n := startNode(t, nil)
	n.create("acme", 1)
	for _, path := range []string{"/t/acme", "/t/acme/", "/t/acme/db"} {
		db, err := sql.Open("libsql", n.url+path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec("create table if not exists n (id integer primary key, v text)"); err != nil {
			t.Fatal(err)
		}
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		res, err := tx.Exec("insert into n (v) values (?)", path)
		if err != nil {
			t.Fatal(err)
		}
		id, err := res.LastInsertId()
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		var got string
		if err := db.QueryRow("select v from n where id = ?", id).Scan(&got); err != nil || got != path {
			t.Errorf("%s: %q %v", path, got, err)
		}
	}
}
