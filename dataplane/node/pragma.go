package node

import "strings"

// listingPragmas take an argument in parentheses and only read.
var listingPragmas = map[string]bool{
	"table_info": true, "table_xinfo": true, "table_list": true,
	"index_list": true, "index_info": true, "index_xinfo": true,
	"foreign_key_list": true, "foreign_key_check": true,
	"integrity_check": true, "quick_check": true,
}

// actingPragmas do something although they take no value.
var actingPragmas = map[string]bool{
	"optimize": true, "incremental_vacuum": true, "shrink_memory": true, "wal_checkpoint": true,
}

// settings are PRAGMAs that last as long as a connection.
var settings = map[string]bool{
	"foreign_keys": true, "defer_foreign_keys": true, "recursive_triggers": true, "ignore_check_constraints": true,
	"legacy_alter_table": true, "case_sensitive_like": true, "analysis_limit": true, "reverse_unordered_selects": true,
}

// settingPragma is the name of the setting that a PRAGMA statement makes, or "".
func settingPragma(sql string) string {
	_, rest, _ := cutWord(sql)
	end := strings.IndexAny(rest, "=(")
	if end < 0 {
		return ""
	}
	if name := pragmaName(rest[:end]); settings[name] {
		return name
	}
	return ""
}

func pragmaName(text string) string {
	if _, after, schema := strings.Cut(text, "."); schema {
		text = after
	}
	return strings.ToLower(strings.Trim(text, " \t\r\n\f;\"'`[]"))
}

// readPragma tells whether a PRAGMA only reads what is the same on every connection,
// so that a reader, and a frozen unit, can answer it.
func readPragma(sql string) bool {
	_, rest, ok := cutWord(sql)
	if !ok || strings.ContainsAny(rest, "=") {
		return false
	}
	name, argument, hasArgument := strings.Cut(rest, "(")
	name = pragmaName(name)
	if strings.Contains(argument, ";") && strings.Trim(argument[strings.Index(argument, ";"):], " \t\r\n\f;") != "" {
		return false // a second statement: the writer finds it out
	}
	if hasArgument {
		return listingPragmas[name]
	}
	return !actingPragmas[name]
}

// firstWord is the first keyword of a statement, behind white space and comments.
func firstWord(sql string) string {
	word, _, _ := cutWord(sql)
	return word
}

// cutWord splits off the first keyword.
func cutWord(sql string) (word, rest string, ok bool) {
	for sql != "" {
		switch c := sql[0]; {
		case c == ' ' || c >= '\t' && c <= '\r' || c == ';':
			sql = sql[1:]
		case strings.HasPrefix(sql, "--"):
			_, sql, _ = strings.Cut(sql, "\n")
		case strings.HasPrefix(sql, "/*"):
			_, sql, _ = strings.Cut(sql[2:], "*/")
		default:
			end := 0
			for end < len(sql) && sql[end]|0x20 >= 'a' && sql[end]|0x20 <= 'z' {
				end++
			}
			return sql[:end], sql[end:], end > 0
		}
	}
	return "", "", false
}
