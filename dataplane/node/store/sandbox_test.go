package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// manual runs a script on the writer, as a client's sequence does.
func manual(u *Unit, sql string) error {
	tx, err := u.Begin(ctx, Manual)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	return tx.Do(ctx, func(c *Conn) error {
		for sql != "" {
			_, tail, err := c.Exec(sql, nil, nil)
			if err != nil {
				return err
			}
			sql = tail
		}
		return nil
	})
}

// Every known way out of a database file, or around the node's rules.
var waysOut = []string{
	"ATTACH 'OUT' AS x", "ATTACH DATABASE 'file:OUT' AS x", "ATTACH ':memory:' AS x", "ATTACH '' AS x", "ATTACH char(47)||'tmp' AS x",
	"DETACH main", "VACUUM INTO 'OUT'", "VACUUM main INTO 'OUT'", "VACUUM INTO '/'||'tmp/x'",
	"SELECT load_extension('OUT')", "SELECT load_extension('OUT','f')", "SELECT readfile('/etc/passwd')", "SELECT writefile('OUT','x')",
	"SELECT edit('x','sh')", "SELECT * FROM fsdir('/')", "SELECT fts3_tokenizer('simple')", "SELECT fts3_tokenizer('simple', x'00')",
	"SELECT sqlite_log(1,'x')", "SELECT * FROM zipfile('OUT')",
	"SELECT * FROM sqlite_dbpage", "INSERT INTO sqlite_dbpage(pgno,data) VALUES(1,NULL)", "UPDATE sqlite_dbpage SET data=zeroblob(4096)",
	"SELECT * FROM dbstat", "CREATE VIRTUAL TABLE v USING dbstat(main)", "CREATE VIRTUAL TABLE v USING sqlite_dbpage", "CREATE VIRTUAL TABLE v USING csv(filename='/etc/passwd')",
	"CREATE VIRTUAL TABLE v USING zipfile('OUT')",
	"PRAGMA writable_schema=1", "PRAGMA writable_schema=RESET", "UPDATE sqlite_schema SET sql='x'", "INSERT INTO sqlite_schema VALUES('table','x','x',1,'x')", "DELETE FROM sqlite_master",
	"PRAGMA journal_mode=DELETE", "PRAGMA journal_mode=OFF", "PRAGMA main.journal_mode=MEMORY", "PRAGMA locking_mode=EXCLUSIVE", "PRAGMA synchronous=OFF",
	"PRAGMA wal_autocheckpoint=1", "PRAGMA wal_autocheckpoint", "PRAGMA wal_checkpoint", "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA journal_size_limit=0",
	"PRAGMA mmap_size=1000000", "PRAGMA soft_heap_limit=1", "PRAGMA hard_heap_limit=1", "PRAGMA cache_size=-1000000", "PRAGMA cache_spill=0", "PRAGMA shrink_memory",
	"PRAGMA page_size=512", "PRAGMA auto_vacuum=1", "PRAGMA encoding='UTF-16'", "PRAGMA schema_version=9", "PRAGMA max_page_count=1", "PRAGMA query_only=0", "PRAGMA trusted_schema=1",
	"PRAGMA temp_store_directory='/tmp'", "PRAGMA temp_store=MEMORY", "PRAGMA data_store_directory='x'", "PRAGMA threads=8", "PRAGMA busy_timeout=100000", "PRAGMA database_list",
	"PRAGMA read_uncommitted=1", "PRAGMA secure_delete=1", "PRAGMA fullfsync=1", "PRAGMA checkpoint_fullfsync=1", "PRAGMA cell_size_check=1", "PRAGMA count_changes=1", "PRAGMA no_such_pragma=1",
	"SELECT * FROM pragma_database_list", "SELECT * FROM pragma_wal_checkpoint", "SELECT * FROM pragma_journal_mode('delete')",
	"CREATE TEMP TABLE x(a)", "CREATE TABLE temp.x(a)", "CREATE TEMP VIEW x AS SELECT 1", "CREATE TEMP TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END", "CREATE TEMP TABLE x AS SELECT 1", "CREATE VIEW temp.x AS SELECT 1", "CREATE TRIGGER temp.x AFTER INSERT ON main.t BEGIN SELECT 1; END", "CREATE VIRTUAL TABLE temp.x USING fts5(a)", "INSERT INTO sqlite_temp_schema VALUES(1,2,3,4,5)",
	"SELECT * FROM _domicile_keys", "SELECT answer FROM main._DOMICILE_keys", "INSERT INTO _domicile_keys VALUES('a','b','c',1)", "DELETE FROM _domicile_keys", "UPDATE _domicile_keys SET at=0",
	"DROP TABLE _domicile_keys", "ALTER TABLE _domicile_keys RENAME TO x", "ALTER TABLE _domicile_keys ADD COLUMN x", "CREATE INDEX x ON _domicile_keys(at)", "DROP INDEX _domicile_keys_at",
	"CREATE TRIGGER x AFTER INSERT ON _domicile_keys BEGIN SELECT 1; END", "CREATE TABLE _domicile_x(a)", "CREATE TABLE \"_Domicile_x\"(a)", "CREATE VIEW _domicile_x AS SELECT 1",
	"CREATE INDEX _domicile_x ON t(a)", "ALTER TABLE t RENAME TO _domicile_x", "ALTER TABLE t RENAME TO [_domicile_x]", "PRAGMA table_info(_domicile_keys)", "SELECT * FROM pragma_table_info('_domicile_keys')",
	"WITH x AS (SELECT * FROM _domicile_keys) SELECT * FROM x", "CREATE TABLE y AS SELECT * FROM _domicile_keys", "INSERT INTO t SELECT at FROM _domicile_keys", "SELECT (SELECT count(*) FROM _domicile_keys)",
	"SELECT fingerprint, answer FROM _domicile_keys WHERE key=? AND at>?",
	"CREATE VIEW w AS SELECT * FROM _domicile_keys; SELECT * FROM w", "CREATE TRIGGER r AFTER INSERT ON t BEGIN DELETE FROM _domicile_keys; END; INSERT INTO t VALUES(1)",
	"CREATE VIRTUAL TABLE f USING fts5(answer, content='_domicile_keys', content_rowid='at'); SELECT * FROM f",
	"BEGIN; ATTACH 'OUT' AS x", "EXPLAIN ATTACH 'OUT' AS x", ";;/* x */ATTACH 'OUT' AS x",
}

func TestSandboxWaysOut(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(a)", "INSERT INTO t VALUES(1)")
	_, err := u.Write(ctx, func(c *Conn) error { return c.StoreKey("k", []byte("f"), []byte("a"), testTime) })
	if err != nil {
		t.Fatal(err)
	}
	// The node's own statements are in the connections' caches now: a tenant that
	// sends their text must not get them.
	if _, _, found, err := u.LookupKey(ctx, "k", testTime); !found || err != nil {
		t.Fatal(found, err)
	}
	out := filepath.Join(t.TempDir(), "out.db")
	cwd, _ := os.ReadDir(".")
	for _, sql := range append(waysOut, keysGet, keysPut, keysPrune) {
		sql = strings.ReplaceAll(sql, "OUT", out)
		for mode, run := range map[string]func() error{
			"writer": func() error { return manual(u, sql) },
			"reader": func() error { _, err := query(u, sql); return err },
		} {
			err := run()
			var sqlErr *SQLError
			if err == nil || !errors.As(err, &sqlErr) {
				t.Errorf("%s: %s: %v", mode, sql, err)
			}
			if err != nil && strings.Contains(err.Error(), "not authorized") {
				t.Errorf("%s: %s: says only %q", mode, sql, err)
			}
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a file was made outside")
	}
	if now, _ := os.ReadDir("."); len(now) != len(cwd) {
		t.Error("a file was made in the working folder")
	}
	// What is kept is as before.
	for sql, want := range map[string]string{
		"PRAGMA journal_mode": "wal", "PRAGMA locking_mode": "normal", "PRAGMA page_size": "4096",
		"PRAGMA foreign_keys": "1", "PRAGMA integrity_check": "ok", "SELECT count(*) FROM t": "1",
	} {
		if got := one(t, u, sql); got != want {
			t.Errorf("%s: %s", sql, got)
		}
	}
	_, answer, found, err := u.LookupKey(ctx, "k", testTime)
	if err != nil || !found || string(answer) != "a" {
		t.Errorf("the node's own table: %q %v %v", answer, found, err)
	}
}

func TestSandboxAllows(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(a INTEGER PRIMARY KEY, b REFERENCES t(a))")
	u.Write(ctx, func(c *Conn) error { return c.StoreKey("k", nil, []byte("a"), testTime) })
	for _, sql := range []string{
		"VACUUM", "ANALYZE", "REINDEX", "PRAGMA optimize", "PRAGMA journal_mode=WAL", "PRAGMA foreign_key_check", "PRAGMA integrity_check",
		"PRAGMA foreign_keys=off; BEGIN; INSERT INTO t VALUES(1, 99); COMMIT; DELETE FROM t; PRAGMA foreign_keys=on",
		"PRAGMA user_version=7; PRAGMA application_id=1", "PRAGMA table_info(t)", "SELECT * FROM pragma_table_info('t')", "PRAGMA table_list",
		"CREATE VIRTUAL TABLE f USING fts5(x); INSERT INTO f VALUES('hello world'); SELECT * FROM f WHERE f MATCH 'hello'", "CREATE VIRTUAL TABLE fv USING fts5vocab(f, 'row'); SELECT * FROM fv",
		"CREATE VIRTUAL TABLE r USING rtree(id, a, b); INSERT INTO r VALUES(1,0,1)", "DROP TABLE r; DROP TABLE f",
		"CREATE VIEW v AS SELECT 1 AS x; SELECT * FROM v; DROP VIEW v", "CREATE TRIGGER tr AFTER INSERT ON t BEGIN SELECT 1; END; DROP TRIGGER tr",
		"ALTER TABLE t ADD COLUMN c; ALTER TABLE t RENAME COLUMN c TO d; ALTER TABLE t DROP COLUMN d; ALTER TABLE t RENAME TO t2; ALTER TABLE t2 RENAME TO t",
		"SAVEPOINT a; INSERT INTO t VALUES(5, NULL); ROLLBACK TO a; RELEASE a", "BEGIN TRANSACTION READONLY; SELECT 1; COMMIT",
		"CREATE TABLE g(a, b AS (a+1)); INSERT INTO g(a) VALUES(1); DROP TABLE g", "SELECT json_extract('{\"a\":1}', '$.a')", "EXPLAIN QUERY PLAN SELECT * FROM t", "SELECT \"quoted as text\"",
		"WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<5) SELECT * FROM n",
	} {
		if err := manual(u, sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if err := manual(u, "INSERT INTO t VALUES(2, 98)"); err == nil {
		t.Error("foreign keys are off")
	}
}

// What one user sets is undone before the next one gets the connection.
func TestSandboxSettingsDoNotLeak(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	read := func(sql string) (got string) {
		tx, err := u.Begin(ctx, Manual)
		if err != nil {
			t.Fatal(err)
		}
		err = tx.Do(ctx, func(c *Conn) error {
			_, _, err := c.Exec(sql, nil, func(r *Row) error { got = text(r.Value(0)); return nil })
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, r := range resets {
		if r.name == "case_sensitive_like" { // cannot be asked
			manual(u, "PRAGMA case_sensitive_like=1")
			if read("SELECT 'a' LIKE 'A'") != "1" {
				t.Error("case_sensitive_like leaked")
			}
			continue
		}
		if got := read("PRAGMA " + r.name); got != r.value {
			t.Errorf("%s is %s at first", r.name, got)
		}
		set := "1"
		if r.value == "1" {
			set = "0"
		}
		if err := manual(u, "PRAGMA "+r.name+"="+set); err != nil {
			t.Fatal(err)
		}
		if got := read("PRAGMA " + r.name); got != r.value {
			t.Errorf("%s leaked: %s", r.name, got)
		}
	}
	write(t, u, "CREATE TABLE t(a INTEGER PRIMARY KEY)", "INSERT INTO t VALUES(41)")
	if got := read("SELECT last_insert_rowid()"); got != "0" {
		t.Errorf("last_insert_rowid leaked: %s", got)
	}
}

func TestSandboxLimits(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	for _, sql := range []string{
		"SELECT '" + strings.Repeat("x", maxSQL) + "'",
		"SELECT 1" + strings.Repeat("+1", 300),
		"SELECT length(zeroblob(100000000))", "SELECT 'x' LIKE '" + strings.Repeat("%x", 6000) + "'",
		"VALUES(1)" + strings.Repeat(" UNION SELECT 1", 600),
	} {
		_, err := query(u, sql)
		var e *SQLError
		if !errors.As(err, &e) {
			t.Errorf("%.40s…: %v", sql, err)
		}
	}
}

func TestStatementsInsideWriteCannotEndIt(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(a)")
	for _, sql := range []string{"COMMIT", "ROLLBACK", "END", "BEGIN", "/**/ commit;"} {
		_, err := u.Write(ctx, func(c *Conn) error {
			if _, _, err := c.Exec("INSERT INTO t VALUES(1)", nil, nil); err != nil {
				return err
			}
			_, _, err := c.Exec(sql, nil, nil)
			return err
		})
		wantErr(t, err, ErrNotAllowed)
	}
	if n := one(t, u, "SELECT count(*) FROM t"); n != "0" {
		t.Fatalf("%s rows stayed", n)
	}
	_, err := query(u, "INSERT INTO t VALUES(1)")
	wantErr(t, err, ErrReadOnly)
}
