package hrana

import "strings"

// beginsTransaction tells whether the statement's first word is BEGIN or SAVEPOINT,
// the two that leave a transaction open.
func beginsTransaction(sql string) bool {
	word := firstWord(sql)
	return strings.EqualFold(word, "BEGIN") || strings.EqualFold(word, "SAVEPOINT")
}

// firstWord is the first keyword, behind white space, comments and empty statements,
// as SQLite's tokenizer sees it.
func firstWord(sql string) string {
	for sql != "" {
		switch c := sql[0]; {
		case c == ' ' || c >= '\t' && c <= '\r' || c == ';':
			sql = sql[1:]
		case strings.HasPrefix(sql, "\ufeff"):
			sql = sql[len("\ufeff"):]
		case strings.HasPrefix(sql, "--"):
			_, sql, _ = strings.Cut(sql, "\n")
		case strings.HasPrefix(sql, "/*"):
			_, sql, _ = strings.Cut(sql[2:], "*/")
		default:
			end := 0
			for end < len(sql) && (sql[end]|0x20 >= 'a' && sql[end]|0x20 <= 'z') {
				end++
			}
			return sql[:end]
		}
	}
	return ""
}
