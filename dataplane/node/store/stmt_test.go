package store

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestClassify(t *testing.T) {
	for sql, want := range map[string]Kind{
		"": KindEmpty, " ;; -- x\n /* y */ ;": KindEmpty, "/* open": KindEmpty, "--": KindEmpty, "\uFEFF": KindEmpty,
		"select 1": KindRead, "  /* c */ SELECT 1": KindRead, "-- c\nVALUES(1)": KindRead, ";SELECT 1": KindRead, "EXPLAIN DELETE FROM t": KindRead,
		"WITH a AS (SELECT 1) SELECT * FROM a": KindRead, "WITH a(x) AS (DELETE) INSERT INTO t SELECT 1": KindWrite,
		"WITH a AS (SELECT ') DELETE') , \"b)\" AS (SELECT 2) UPDATE t SET x=1": KindWrite, "WITH [a) x] AS (SELECT 1) VALUES(2)": KindRead, "with recursive `q` as (select 1) delete from t": KindWrite,
		"INSERT INTO t VALUES(1)": KindWrite, "CREATE TABLE t(a)": KindWrite, "VACUUM": KindWrite, "ANALYZE": KindWrite, "nonsense": KindWrite, "(": KindWrite,
		"PRAGMA x": KindPragma, "BEGIN": KindBegin, "begin immediate transaction": KindBegin, "BEGIN TRANSACTION READONLY": KindBeginRead, "BEGIN/**/READONLY;": KindBeginRead, "BEGIN TRANSACTION name": KindBegin,
		"COMMIT": KindCommit, "END TRANSACTION": KindCommit, "ROLLBACK": KindRollback, "ROLLBACK TRANSACTION;": KindRollback,
		"ROLLBACK TO x": KindSavepoint, "ROLLBACK TRANSACTION TO SAVEPOINT x": KindSavepoint, "SAVEPOINT x": KindSavepoint, "RELEASE x": KindSavepoint,
	} {
		if got := Classify(sql); got != want {
			t.Errorf("%q is %d, want %d", sql, got, want)
		}
	}
}

func FuzzClassify(f *testing.F) {
	f.Add("WITH a AS (SELECT ') DELETE') UPDATE t SET x=1")
	f.Add("/* */;;BEGIN TRANSACTION READONLY")
	f.Fuzz(func(t *testing.T, sql string) { Classify(sql) })
}

func TestStatements(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(id INTEGER PRIMARY KEY, n NUMERIC(5), x)")
	_, err := u.Write(ctx, func(c *Conn) error {
		st, tail, err := c.Prepare("INSERT INTO t(n, x) VALUES(?, :x) ; -- end\n SELECT 1 -- two\n")
		if err != nil {
			return err
		}
		defer st.Close()
		if want := []string{"", ":x"}; !reflect.DeepEqual(st.Params(), want) || st.ReadOnly() || st.IsExplain() || st.Kind() != KindWrite || tail != "SELECT 1 -- two\n" {
			t.Errorf("%q %v %q", st.Params(), st.ReadOnly(), tail)
		}
		for i, v := range []Value{{}, IntValue(math.MinInt64), FloatValue(1.5), TextValue("a\x00é"), TextValue(""), BlobValue([]byte{0, 255}), BlobValue(nil)} {
			st.Bind(1, IntValue(int64(i)))
			st.Bind(2, v)
			r, err := st.Run(nil)
			if err != nil || r.Changes != 1 || r.LastInsertID != int64(i+1) || c.LastInsertID() != r.LastInsertID {
				t.Errorf("%+v, %v", r, err)
			}
		}
		if err := st.Bind(3, Value{}); err == nil {
			t.Error("bound a parameter that is not there")
		}
		for sql, n := range map[string]int64{"UPDATE t SET n=n WHERE id<4": 3, "DELETE FROM t WHERE id>100": 0, "CREATE INDEX i ON t(n)": 0, "SELECT * FROM t": 0} {
			if r, _, err := c.Exec(sql, nil, nil); err != nil || r.Changes != n {
				t.Errorf("%s: %d changes, %v", sql, r.Changes, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := query(u, "SELECT id, typeof(x), x FROM t ORDER BY id")
	if got := fmt.Sprintf("%q", rows); err != nil || got != `[["1" "null" "NULL"] ["2" "integer" "-9223372036854775808"] ["3" "real" "1.5"] ["4" "text" "a\x00é"] ["5" "text" ""] ["6" "blob" "x'00ff'"] ["7" "blob" "x''"]]` {
		t.Fatal(got, err)
	}
	u.Read(ctx, func(c *Conn) error {
		for _, sql := range []string{"", " -- x", ";"} {
			_, _, err := c.Prepare(sql)
			wantErr(t, err, ErrNoStatement)
		}
		st, _, err := c.Prepare("SELECT id, n AS a, x a, 1+1 FROM t")
		if err != nil {
			return err
		}
		want := []Column{{"id", "INTEGER"}, {"a", "NUMERIC(5)"}, {"a", ""}, {"1+1", ""}}
		if got := st.Columns(); !reflect.DeepEqual(got, want) || !st.ReadOnly() {
			t.Errorf("%q", got)
		}
		boom := errors.New("boom")
		n := 0
		_, err = st.Run(func(*Row) error { n++; return boom })
		if err != boom || n != 1 {
			t.Error(n, err)
		}
		st.Close()
		e, _, _ := c.Prepare("EXPLAIN SELECT 1")
		if !e.IsExplain() {
			t.Error("explain")
		}
		e.Close()
		return nil
	})
}

// A statement kept from before a change of the schema shows the new columns.
func TestColumnsFollowTheSchema(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	write(t, u, "CREATE TABLE t(a)", "INSERT INTO t VALUES(1)")
	names := func(run bool) (list string) {
		err := u.Read(ctx, func(c *Conn) error {
			st, _, err := c.Prepare("SELECT * FROM t")
			if err != nil {
				return err
			}
			defer st.Close()
			if run {
				_, err = st.Run(func(r *Row) error {
					if r.Len() != len(st.Columns()) {
						t.Error("the row has other columns")
					}
					return nil
				})
			}
			for _, c := range st.Columns() {
				list += c.Name + " "
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(list)
	}
	for i, alter := range []string{"ALTER TABLE t ADD COLUMN b", "ALTER TABLE t RENAME COLUMN b TO c", "ALTER TABLE t DROP COLUMN c"} {
		for _, run := range []bool{true, false} {
			want := []string{"a", "a b", "a c", "a"}[i]
			if got := names(run); got != want {
				t.Errorf("%v: columns are %q, want %q", run, got, want)
			}
		}
		write(t, u, alter)
		if got, want := names(i%2 == 0), []string{"a b", "a c", "a"}[i]; got != want {
			t.Errorf("after %s: columns are %q", alter, got)
		}
	}
}
