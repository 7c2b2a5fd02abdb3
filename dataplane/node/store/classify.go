package store

import "strings"

// Kind is the class of a statement.
type Kind int

// The classes.
const (
	KindEmpty     Kind = iota // no statement
	KindRead                  // SELECT, VALUES, EXPLAIN, a WITH that reads
	KindWrite                 // everything not listed: DML, DDL, VACUUM, ANALYZE …
	KindPragma                // PRAGMA: run it on the writer, in Manual
	KindBegin                 // BEGIN [DEFERRED|IMMEDIATE|EXCLUSIVE]
	KindBeginRead             // BEGIN … READONLY, as @libsql/client sends it
	KindCommit                // COMMIT, END
	KindRollback              // ROLLBACK (not TO)
	KindSavepoint             // SAVEPOINT, RELEASE, ROLLBACK TO
)

// Classify tells the class of the first statement in sql by its words,
// without a connection. It decides where to run a statement, not whether it
// may run: a statement taken for a read that writes after all fails with
// ErrReadOnly on a reader, without effect; run it on the writer then.
func Classify(sql string) Kind {
	sql = skipEmpty(sql)
	if sql == "" {
		return KindEmpty
	}
	word, rest := nextWord(sql)
	switch strings.ToUpper(word) {
	case "SELECT", "VALUES", "EXPLAIN":
		return KindRead
	case "WITH":
		return classifyWith(rest)
	case "PRAGMA":
		return KindPragma
	case "BEGIN":
		return classifyBegin(rest)
	case "COMMIT", "END":
		return KindCommit
	case "SAVEPOINT", "RELEASE":
		return KindSavepoint
	case "ROLLBACK":
		word, rest = nextWord(rest)
		if strings.EqualFold(word, "TRANSACTION") {
			word, _ = nextWord(rest)
		}
		if strings.EqualFold(word, "TO") {
			return KindSavepoint
		}
		return KindRollback
	}
	return KindWrite
}

// classifyBegin finds READONLY, which SQLite itself takes for the
// transaction's name: BEGIN TRANSACTION READONLY.
func classifyBegin(rest string) Kind {
	for {
		var word string
		word, rest = nextWord(rest)
		switch strings.ToUpper(word) {
		case "DEFERRED", "IMMEDIATE", "EXCLUSIVE", "TRANSACTION":
		case "READONLY":
			return KindBeginRead
		default:
			return KindBegin
		}
	}
}

// classifyWith looks for the verb after the common table expressions: the
// first one outside of brackets.
func classifyWith(s string) Kind {
	depth := 0
	for {
		s = skipBlank(s)
		if s == "" || s[0] == ';' {
			return KindRead
		}
		switch c := s[0]; {
		case c == '(':
			depth++
			s = s[1:]
		case c == ')':
			depth--
			s = s[1:]
		case c == '\'' || c == '"' || c == '`' || c == '[':
			s = skipQuoted(s)
		default:
			word, rest := nextWord(s)
			if word == "" {
				s = s[1:]
				continue
			}
			s = rest
			if depth > 0 {
				continue
			}
			switch strings.ToUpper(word) {
			case "SELECT", "VALUES":
				return KindRead
			case "INSERT", "REPLACE", "UPDATE", "DELETE":
				return KindWrite
			}
		}
	}
}

// nextWord gives the word at the start of s, after blanks and comments.
func nextWord(s string) (word, rest string) {
	s = skipBlank(s)
	i := 0
	for i < len(s) && isWordByte(s[i]) {
		i++
	}
	return s[:i], s[i:]
}

func isWordByte(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// skipEmpty drops empty statements, white space and comments.
func skipEmpty(s string) string {
	s = strings.TrimPrefix(s, "\uFEFF")
	for {
		s = skipBlank(s)
		if !strings.HasPrefix(s, ";") {
			return s
		}
		s = s[1:]
	}
}

// skipBlank drops white space and comments.
func skipBlank(s string) string {
	for {
		t := strings.TrimLeft(s, " \t\r\n\f")
		switch {
		case strings.HasPrefix(t, "--"):
			_, rest, ok := strings.Cut(t, "\n")
			if !ok {
				return ""
			}
			s = rest
		case strings.HasPrefix(t, "/*"):
			_, rest, ok := strings.Cut(t[2:], "*/")
			if !ok {
				return ""
			}
			s = rest
		default:
			return t
		}
	}
}

// skipQuoted drops the quoted token at the start of s.
func skipQuoted(s string) string {
	end := s[0]
	if end == '[' {
		end = ']'
	}
	for i := 1; i < len(s); i++ {
		if s[i] != end {
			continue
		}
		if end != ']' && i+1 < len(s) && s[i+1] == end {
			i++
			continue
		}
		return s[i+1:]
	}
	return ""
}
