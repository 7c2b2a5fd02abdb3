package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// inProcess takes the figures that need no HTTP: the driver alone, and C's
// command line on a file of rows.
func (b *nodeBench) inProcess(dir string, d time.Duration) error {
	for name, mode := range map[string]string{"insert, a sync per commit": "FULL", "insert NORMAL": "NORMAL"} {
		v, err := insertLoop(filepath.Join(dir, "local-"+mode+".db"), mode, d)
		if err != nil {
			return err
		}
		b.local[name] = append(b.local[name], v)
	}
	v, err := importRows(dir, 300_000)
	if err != nil {
		return err
	}
	b.local["C, rows in one transaction"] = append(b.local["C, rows in one transaction"], v)
	return nil
}

func insertLoop(file, mode string, d time.Duration) (float64, error) {
	conn, err := sqlite.OpenConn(file, sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenWAL)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	for _, sql := range []string{"pragma synchronous=" + mode, "create table if not exists log (id integer primary key, body text)"} {
		if err := sqlitex.ExecuteTransient(conn, sql, nil); err != nil {
			return 0, err
		}
	}
	stmt, err := conn.Prepare("insert into log (body) values (?)")
	if err != nil {
		return 0, err
	}
	n, begin := 0, time.Now()
	for time.Since(begin) < d {
		stmt.BindText(1, "a row of a tenant, as long as one is")
		if _, err := stmt.Step(); err != nil {
			return 0, err
		}
		if err := stmt.Reset(); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}

// importRows has the sqlite3 command line (Debian's package) import a file of
// rows in one transaction: a prepared insert per row, in C.
func importRows(dir string, rows int) (float64, error) {
	csv, db := filepath.Join(dir, "rows.csv"), filepath.Join(dir, "c.db")
	f, err := os.Create(csv)
	if err != nil {
		return 0, err
	}
	w := bufio.NewWriter(f)
	for i := range rows {
		fmt.Fprintf(w, "%d,a row of a tenant as long as one is\n", i+1)
	}
	if err := w.Flush(); err != nil {
		return 0, err
	}
	if err := f.Close(); err != nil {
		return 0, err
	}
	for _, old := range []string{db, db + "-wal", db + "-shm"} {
		_ = os.Remove(old)
	}
	begin := time.Now()
	out, err := exec.Command("sqlite3", db,
		"pragma journal_mode=wal", "pragma synchronous=normal", "create table log (id integer primary key, body text)", "begin", ".mode csv", ".import "+csv+" log", "commit").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("sqlite3 (Debian's package sqlite3): %w: %s", err, out)
	}
	return float64(rows) / time.Since(begin).Seconds(), nil
}
