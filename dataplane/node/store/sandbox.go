package store

import "strings"

// The sandbox: what a tenant's statement may do. Everything that is not known
// to stay within the unit's file is refused, when the statement is compiled.

// internalPrefix begins the names of the node's own tables in a unit.
const internalPrefix = "_domicile_"

func isInternal(name string) bool {
	return len(name) >= len(internalPrefix) && strings.EqualFold(name[:len(internalPrefix)], internalPrefix)
}

// deniedTables give a way around the tables themselves.
var deniedTables = map[string]bool{"sqlite_dbpage": true, "dbstat": true, "sqlite_stmt": true, "bytecode": true, "tables_used": true}

// allowedModules are the virtual tables that keep their data in the unit's file.
var allowedModules = map[string]bool{"fts5": true, "fts5vocab": true, "rtree": true, "rtree_i32": true, "geopoly": true}

// deniedFunctions reach outside the file, or into the process.
var deniedFunctions = map[string]bool{
	"load_extension": true, "readfile": true, "writefile": true, "edit": true, "fsdir": true,
	"lsmode": true, "fts3_tokenizer": true, "sqlite_log": true, "zipfile": true, "dbdata": true,
}

func notAllowed(why string) *SQLError {
	return &SQLError{Code: codeAuth, Name: codeName(codeAuth), Message: "not allowed: " + why, Offset: -1}
}

// authorize is asked by SQLite for each thing that a statement would do.
func (c *Conn) authorize(op int, a1, a2, db string) int {
	if c.internal || (c.vacuuming && op != actAttach) {
		if op == actTransaction {
			c.sawTx = true
		}
		return authOK
	}
	why := ""
	if db == "temp" && op != actRead && op != actUpdate {
		op = actCreateTempTbl // however it was said; ALTER TABLE updates the temporary schema
	}
	switch op {
	case actSelect, actRecursive, actSavepoint, actDropView:
	case actTransaction:
		c.sawTx = true
	case actRead, actInsert, actUpdate, actDelete, actDropTable, actCreateTable, actDropIndex, actCreateView:
		why = tableDenied(a1)
	case actCreateIndex, actCreateTrigger, actDropTrigger:
		if why = tableDenied(a1); why == "" {
			why = tableDenied(a2)
		}
	case actAlterTable:
		why = tableDenied(a2)
	case actReindex, actAnalyze:
		if isInternal(a1) {
			return authIgnore // passed over, so that ANALYZE of everything works
		}
	case actCreateVTable, actDropVTable:
		if why = tableDenied(a1); why == "" && op == actCreateVTable && !allowedModules[strings.ToLower(a2)] {
			why = "the virtual table module " + a2
		}
	case actFunction:
		if deniedFunctions[strings.ToLower(a2)] {
			why = "the function " + a2
		}
	case actPragma:
		why = c.pragmaDenied(strings.ToLower(a1), a2)
	case actAttach:
		if c.vacuuming && a1 == "" {
			return authOK // VACUUM's own scratch database
		}
		why = "a statement may not reach another database file (ATTACH, VACUUM INTO)"
	case actDetach:
		why = "DETACH"
	case actCreateTempTbl, actCreateTempIdx, actCreateTempTrg, actCreateTempVw:
		why = "temporary tables, views, indexes and triggers (connections are shared: make ordinary ones)"
	default:
		why = "this kind of statement"
	}
	if why == "" {
		return authOK
	}
	c.denied = "not allowed: " + why
	return authDeny
}

func tableDenied(name string) string {
	switch {
	case isInternal(name):
		return "names that begin with " + internalPrefix + " belong to the node"
	case deniedTables[strings.ToLower(name)]:
		return "the table " + name
	}
	return ""
}

// renamesToInternal catches ALTER TABLE … RENAME TO: SQLite does not tell the
// authorizer the new name.
func renamesToInternal(text string) bool {
	return hasVerb(text, "ALTER") && strings.Contains(strings.ToLower(text), internalPrefix)
}

// How a PRAGMA may be used.
const (
	pragmaGet   = 1 << iota // without a value
	pragmaArg               // with a value that names something (a table)
	pragmaSet               // with a value that is kept in the unit's file
	pragmaReset             // with a value that is undone when the loan ends
)

// pragmas lists what is allowed; what is not here is refused.
var pragmas = map[string]int{
	"table_info": pragmaArg, "table_xinfo": pragmaArg, "table_list": pragmaGet | pragmaArg,
	"index_list": pragmaArg, "index_info": pragmaArg, "index_xinfo": pragmaArg,
	"foreign_key_list": pragmaArg, "foreign_key_check": pragmaGet | pragmaArg,
	"integrity_check": pragmaGet | pragmaArg, "quick_check": pragmaGet | pragmaArg,
	"collation_list": pragmaGet, "function_list": pragmaGet, "module_list": pragmaGet,
	"pragma_list": pragmaGet, "compile_options": pragmaGet,

	"user_version": pragmaGet | pragmaSet, "application_id": pragmaGet | pragmaSet,
	"optimize": pragmaGet | pragmaArg, "incremental_vacuum": pragmaGet | pragmaArg,

	"foreign_keys": pragmaGet | pragmaReset, "defer_foreign_keys": pragmaGet | pragmaReset,
	"recursive_triggers": pragmaGet | pragmaReset, "ignore_check_constraints": pragmaGet | pragmaReset,
	"legacy_alter_table": pragmaGet | pragmaReset, "case_sensitive_like": pragmaReset,
	"analysis_limit": pragmaGet | pragmaReset, "reverse_unordered_selects": pragmaGet | pragmaReset,

	"auto_vacuum": pragmaGet, "automatic_index": pragmaGet, "busy_timeout": pragmaGet, "cache_size": pragmaGet,
	"data_version": pragmaGet, "encoding": pragmaGet, "freelist_count": pragmaGet, "journal_mode": pragmaGet,
	"locking_mode": pragmaGet, "max_page_count": pragmaGet, "page_count": pragmaGet, "page_size": pragmaGet,
	"query_only": pragmaGet, "read_uncommitted": pragmaGet, "schema_version": pragmaGet, "secure_delete": pragmaGet,
	"synchronous": pragmaGet, "temp_store": pragmaGet, "trusted_schema": pragmaGet, "cell_size_check": pragmaGet,
	"journal_size_limit": pragmaGet,
}

// resets undo the pragmaReset ones.
var resets = []struct{ name, value string }{
	{"foreign_keys", "1"}, {"defer_foreign_keys", "0"}, {"recursive_triggers", "0"},
	{"ignore_check_constraints", "0"}, {"legacy_alter_table", "0"}, {"case_sensitive_like", "0"},
	{"analysis_limit", "0"}, {"reverse_unordered_selects", "0"},
}

func (c *Conn) pragmaDenied(name, value string) string {
	use := pragmas[name]
	switch {
	case name == "journal_mode" && strings.EqualFold(value, "wal"):
		return "" // what it is anyway; frameworks say it at start
	case use == 0:
		return "PRAGMA " + name + " (it reaches outside the unit, or changes how the node keeps it)"
	case isInternal(value):
		return "names that begin with " + internalPrefix + " belong to the node"
	case value == "" && use&(pragmaGet|pragmaArg) != 0:
		return ""
	case use&(pragmaArg|pragmaSet) != 0:
		return ""
	case use&pragmaReset != 0:
		for i, r := range resets {
			if r.name == name {
				c.touched |= 1 << i
			}
		}
		return ""
	}
	return "setting PRAGMA " + name + " (the node sets it)"
}

func resetSQL(touched int) string {
	var b strings.Builder
	for i, r := range resets {
		if touched&(1<<i) != 0 {
			b.WriteString("PRAGMA " + r.name + "=" + r.value + ";")
		}
	}
	return b.String()
}
