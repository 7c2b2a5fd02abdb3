package hrana

import (
	"math"
	"strconv"
	"sync"

	"domicile/dataplane/node/jsonscan"
)

// Version is the protocol's version.
type Version int

// The versions served.
const (
	V2 Version = 2
	V3 Version = 3
)

type op uint8

const (
	opNone op = iota
	opExecute
	opBatch
	opSequence
	opDescribe
	opStoreSQL
	opCloseSQL
	opClose
	opGetAutocommit
)

var opNames = [...]string{
	opExecute: "execute", opBatch: "batch", opSequence: "sequence", opDescribe: "describe",
	opStoreSQL: "store_sql", opCloseSQL: "close_sql", opClose: "close", opGetAutocommit: "get_autocommit",
}

// sqlRef is a statement's text, or the number of a stored one.
type sqlRef struct {
	text   string
	id     int32
	hasSQL bool
	hasID  bool
}

type stmtReq struct {
	sql      sqlRef
	args     []Value
	named    []NamedValue
	wantRows bool
}

type step struct {
	cond int32 // in Request.conds; -1 where there is none
	stmt stmtReq
}

type item struct {
	op    op
	sql   sqlRef // of all but execute and batch
	stmt  stmtReq
	steps []step
}

// Request is a decoded body. It aliases the body, and is given back with Release.
type Request struct {
	version Version
	baton   []byte // empty: a new stream
	items   []item

	// What the items point into.
	args  []Value
	named []NamedValue
	steps []step
	conds []cond

	scan jsonscan.Scanner
	run  run
}

var requests = sync.Pool{New: func() any { return new(Request) }}

// maxKept bounds what a pooled Request holds on to, in elements of each slice.
const maxKept = 1024

// Release gives the request's memory back. Neither it nor anything it returned is
// used afterwards.
func (r *Request) Release() {
	if cap(r.items) > maxKept || cap(r.args) > maxKept || cap(r.steps) > maxKept || cap(r.conds) > maxKept {
		return
	}
	// The slots keep strings and slices of the body alive until they are used again.
	clear(r.items)
	clear(r.args)
	clear(r.named)
	clear(r.steps)
	*r = Request{
		items: r.items[:0], args: r.args[:0], named: r.named[:0], steps: r.steps[:0], conds: r.conds[:0],
		run: run{states: r.run.states[:0], errs: r.run.errs[:0]},
	}
	requests.Put(r)
}

// ParsePipeline decodes the body of POST v2/pipeline or v3/pipeline. The error is a
// *ProtocolError.
func ParsePipeline(v Version, body []byte) (*Request, error) {
	return parse(v, body, "requests", (*Request).parseItems)
}

// ParseCursor decodes the body of POST v3/cursor. The error is a *ProtocolError.
func ParseCursor(body []byte) (*Request, error) {
	return parse(V3, body, "batch", func(r *Request) {
		r.items = append(r.items, item{op: opBatch, steps: r.parseBatch()})
	})
}

func parse(v Version, body []byte, field string, content func(*Request)) (*Request, error) {
	r := requests.Get().(*Request)
	r.version = v
	s := &r.scan
	s.Reset(body)
	seen := false
	s.Open('{')
	for s.More('}') {
		switch key := s.Key(); {
		case string(key) == "baton":
			if !s.TryNull() {
				if r.baton = s.String(); len(r.baton) == 0 {
					s.Fail("a baton is never empty")
				}
			}
		case string(key) == field:
			if seen {
				s.Fail("a field is given twice")
			}
			seen = true
			content(r)
		default:
			s.Skip()
		}
	}
	s.End()
	if !seen {
		s.Fail("the field " + field + " is missing")
	}
	if err := s.Err(); err != nil {
		r.Release()
		return nil, protocolError(err.Error())
	}
	return r, nil
}

// Interactive tells that the request goes on with a stream or leaves one open: it is
// not a whole by itself, and cannot be kept under an idempotency key.
func (r *Request) Interactive() bool {
	return len(r.baton) > 0 || len(r.items) == 0 || r.items[len(r.items)-1].op != opClose
}

func (r *Request) parseItems() {
	s := &r.scan
	s.Open('[')
	for s.More(']') {
		r.items = append(r.items, item{})
		r.parseItem(&r.items[len(r.items)-1])
	}
}

func (r *Request) parseItem(it *item) {
	s := &r.scan
	var hasStmt, hasBatch bool
	s.Open('{')
	for s.More('}') {
		switch string(s.Key()) {
		case "type":
			it.op = r.parseOp()
		case "stmt":
			hasStmt = true
			r.parseStmt(&it.stmt)
		case "batch":
			hasBatch = true
			it.steps = r.parseBatch()
		case "sql":
			r.parseSQL(&it.sql)
		case "sql_id":
			r.parseSQLID(&it.sql)
		default:
			s.Skip()
		}
	}
	switch it.op {
	case opNone:
		s.Fail("a request's type is missing")
	case opExecute:
		if !hasStmt {
			s.Fail("execute needs a stmt")
		}
	case opBatch:
		if !hasBatch {
			s.Fail("batch needs a batch")
		}
	case opSequence, opDescribe:
		r.oneOf(&it.sql)
	case opStoreSQL:
		if !it.sql.hasSQL || !it.sql.hasID {
			s.Fail("store_sql needs sql and sql_id")
		}
	case opCloseSQL:
		if !it.sql.hasID {
			s.Fail("close_sql needs a sql_id")
		}
	case opClose, opGetAutocommit:
	}
}

func (r *Request) parseOp() op {
	name := r.scan.String()
	for o := opExecute; o <= opGetAutocommit; o++ {
		if string(name) == opNames[o] && (o != opGetAutocommit || r.version >= V3) {
			return o
		}
	}
	r.scan.Fail("an unknown type of request in this version of the protocol")
	return opNone
}

func (r *Request) parseSQL(ref *sqlRef) {
	if !r.scan.TryNull() {
		ref.text, ref.hasSQL = string(r.scan.String()), true
	}
}

func (r *Request) parseSQLID(ref *sqlRef) {
	if r.scan.TryNull() {
		return
	}
	ref.id, ref.hasID = r.parseInt32(), true
}

func (r *Request) parseInt32() int32 {
	n := r.scan.Int()
	if n < math.MinInt32 || n > math.MaxInt32 {
		r.scan.Fail("a whole number within 32 bits is expected")
	}
	return int32(n)
}

func (r *Request) oneOf(ref *sqlRef) {
	if ref.hasSQL == ref.hasID {
		r.scan.Fail("exactly one of sql and sql_id is needed")
	}
}

func (r *Request) parseStmt(st *stmtReq) {
	s := &r.scan
	*st = stmtReq{wantRows: true}
	s.Open('{')
	for s.More('}') {
		switch string(s.Key()) {
		case "sql":
			r.parseSQL(&st.sql)
		case "sql_id":
			r.parseSQLID(&st.sql)
		case "args":
			st.args = r.parseArgs()
		case "named_args":
			st.named = r.parseNamed()
		case "want_rows":
			if !s.TryNull() {
				st.wantRows = s.Bool()
			}
		default:
			s.Skip()
		}
	}
	r.oneOf(&st.sql)
}

func (r *Request) parseArgs() []Value {
	s := &r.scan
	if s.TryNull() {
		return nil
	}
	start := len(r.args)
	s.Open('[')
	for s.More(']') {
		r.args = append(r.args, r.parseValue())
	}
	return r.args[start:len(r.args):len(r.args)]
}

func (r *Request) parseNamed() []NamedValue {
	s := &r.scan
	if s.TryNull() {
		return nil
	}
	start := len(r.named)
	s.Open('[')
	for s.More(']') {
		var arg NamedValue
		var hasName, hasValue bool
		s.Open('{')
		for s.More('}') {
			switch string(s.Key()) {
			case "name":
				arg.Name, hasName = string(s.String()), true
			case "value":
				arg.Value, hasValue = r.parseValue(), true
			default:
				s.Skip()
			}
		}
		if !hasName || !hasValue {
			s.Fail("a named argument needs a name and a value")
		}
		r.named = append(r.named, arg)
	}
	return r.named[start:len(r.named):len(r.named)]
}

// parseValue reads a value. The type may stand behind the content, so the content is
// kept as it came until the end.
func (r *Request) parseValue() Value {
	s := &r.scan
	var typ, text, base64 []byte
	var number float64
	var hasText, hasNumber, hasBase64 bool
	s.Open('{')
	for s.More('}') {
		switch string(s.Key()) {
		case "type":
			typ = s.String()
		case "base64":
			base64, hasBase64 = s.String(), true
		case "value":
			switch s.Kind() {
			case jsonscan.String:
				text, hasText = s.String(), true
			case jsonscan.Number:
				number, hasNumber = s.Float(), true
			default:
				s.Skip()
			}
		default:
			s.Skip()
		}
	}
	switch {
	case string(typ) == "null":
		return Value{}
	case string(typ) == "integer" && hasText:
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			s.Fail("an integer is a decimal string within 64 bits")
		}
		return Value{Kind: Integer, Int: n}
	case string(typ) == "float" && hasNumber:
		return Value{Kind: Float, Float: number}
	case string(typ) == "text" && hasText:
		return Value{Kind: Text, Bytes: text}
	case string(typ) == "blob" && hasBase64:
		data, err := jsonscan.DecodeBase64(base64)
		if err != nil {
			s.Fail(err.Error())
		}
		return Value{Kind: Blob, Bytes: data}
	}
	s.Fail("a value needs a type (null, integer, float, text, blob) and what belongs to it")
	return Value{}
}
