package node

import (
	"context"
	"encoding/base64"
	"strconv"

	"domicile/dataplane/node/hrana"
	"domicile/dataplane/node/jsonscan"
	"domicile/dataplane/node/store"
	"domicile/internal/httpserve"
)

// query is a query or one statement of a batch: decoded, run, encoded. It is its
// statement's RowWriter and part of the pooled request.
type query struct {
	scan  jsonscan.Scanner
	stmt  statement
	out   []byte
	limit int
	rows  int
	wrote bool // it was run as a write

	runFn func(*store.Conn) error
	read  bool // runFn runs on a reader
}

// reset lets go of the last request's body and result.
func (q *query) reset() {
	q.scan.Reset(nil)
	q.out, q.wrote, q.stmt.sql = nil, false, ""
	q.stmt.columns, q.stmt.result = nil, store.Result{}
	clear(q.stmt.args)
	clear(q.stmt.named)
	q.stmt.args, q.stmt.named = q.stmt.args[:0], q.stmt.named[:0]
}

// parseStatement reads {"sql","args"?}; field is asked about any other field and tells
// whether it took it.
func (q *query) parseStatement(s *jsonscan.Scanner, field func(name string) bool) {
	hasSQL := false
	q.stmt.args, q.stmt.named = q.stmt.args[:0], q.stmt.named[:0]
	seen := 0
	s.Open('{')
	for s.More('}') {
		switch key := s.Key(); string(key) {
		case "sql":
			if hasSQL {
				s.Fail(`"sql" is given twice`)
			}
			q.stmt.sql, hasSQL = string(s.String()), true
		case "args":
			if seen++; seen > 1 {
				s.Fail(`"args" is given twice`)
			}
			q.parseArgs(s)
		default:
			if field == nil || !field(string(key)) {
				s.Fail("unknown field " + strconv.Quote(string(key)))
			}
		}
	}
	if !hasSQL {
		s.Fail(`"sql" is missing`)
	}
}

// parseArgs reads a list of values, or an object of them by name.
func (q *query) parseArgs(s *jsonscan.Scanner) {
	if s.TryNull() {
		return
	}
	if s.Kind() == jsonscan.Object {
		s.Open('{')
		for s.More('}') {
			name := string(s.Key())
			if names(namesOf(q.stmt.named), name) {
				s.Fail("the argument " + strconv.Quote(name) + " is given twice")
			}
			q.stmt.named = append(q.stmt.named, hrana.NamedValue{Name: name, Value: parseJSONValue(s)})
		}
		return
	}
	s.Open('[')
	for s.More(']') {
		q.stmt.args = append(q.stmt.args, parseJSONValue(s))
	}
}

func namesOf(named []hrana.NamedValue) []string {
	all := make([]string, len(named))
	for i := range named {
		all[i] = named[i].Name
	}
	return all
}

// parseJSONValue reads a value as the package comment says.
func parseJSONValue(s *jsonscan.Scanner) hrana.Value {
	switch s.Kind() {
	case jsonscan.Null:
		s.Null()
		return hrana.Value{}
	case jsonscan.Bool:
		if s.Bool() {
			return hrana.Value{Kind: hrana.Integer, Int: 1}
		}
		return hrana.Value{Kind: hrana.Integer}
	case jsonscan.String:
		return hrana.Value{Kind: hrana.Text, Bytes: s.String()}
	case jsonscan.Number:
		return parseNumber(s)
	case jsonscan.Object:
		return parseBlob(s)
	case jsonscan.Array, jsonscan.Bad:
	}
	s.Fail(`an argument is null, true, false, a number, a string or {"base64":"…"}`)
	return hrana.Value{}
}

func parseNumber(s *jsonscan.Scanner) hrana.Value {
	text, integer := s.Number()
	if integer {
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			s.Fail("an integer is at most 64 bits long; write a float with a fraction or an exponent")
		}
		return hrana.Value{Kind: hrana.Integer, Int: n}
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil && s.Err() == nil {
		s.Fail("the number is out of range")
	}
	return hrana.Value{Kind: hrana.Float, Float: f}
}

func parseBlob(s *jsonscan.Scanner) hrana.Value {
	var data []byte
	fields := 0
	s.Open('{')
	for s.More('}') {
		if fields++; string(s.Key()) != "base64" || fields > 1 {
			s.Fail(`a blob is {"base64":"…"}`)
			break
		}
		var err error
		if data, err = jsonscan.DecodeBase64(s.String()); err != nil {
			s.Fail(err.Error())
		}
	}
	if fields != 1 {
		s.Fail(`a blob is {"base64":"…"}`)
	}
	return hrana.Value{Kind: hrana.Blob, Bytes: data}
}

// Begin appends the columns.
func (q *query) Begin(rows hrana.Rows, _ bool) {
	q.out = appendStrings(q.out, q.stmt.columns)
	q.out = append(q.out, `],"rows":[`...)
}

var errResponseTooLarge = httpserve.Errorf(413, "response_too_large", "the result is too large: ask for fewer rows, or use a cursor of the Hrana protocol")

// Row appends a row.
func (q *query) Row(rows hrana.Rows) error {
	out := q.out
	if q.rows++; q.rows > 1 {
		out = append(out, ',')
	}
	out = append(out, '[')
	for i := range q.stmt.columns {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendJSONValue(out, &q.stmt, i)
	}
	q.out = append(out, ']')
	if len(q.out) > q.limit {
		return errResponseTooLarge
	}
	return nil
}

func appendJSONValue(out []byte, s *statement, i int) []byte {
	switch s.Kind(i) {
	case hrana.Integer:
		return strconv.AppendInt(out, s.Int64(i), 10)
	case hrana.Float:
		return jsonscan.AppendFloat(out, s.Float64(i))
	case hrana.Text:
		return jsonscan.AppendString(out, s.Bytes(i))
	case hrana.Blob:
		out = append(out, `{"base64":"`...)
		out = base64.StdEncoding.AppendEncode(out, s.Bytes(i))
		return append(out, '"', '}')
	case hrana.Null:
	}
	return append(out, "null"...)
}

// runOn runs the statement on a connection and appends its result, open at the end.
func (q *query) runOn(c *store.Conn, stream bool) error {
	mark := len(q.out)
	q.rows = 0
	q.out = append(q.out, `{"columns":[`...)
	q.stmt.w = q
	err := q.stmt.run(c, stream)
	q.stmt.w = nil
	if err != nil {
		q.out = q.out[:mark]
		return err
	}
	if len(q.stmt.columns) == 0 {
		q.out = append(q.out, `],"rows":[`...)
	}
	q.out = append(q.out, `],"rows_affected":`...)
	q.out = strconv.AppendInt(q.out, q.stmt.result.Changes, 10)
	q.out = append(q.out, `,"last_insert_rowid":`...)
	if id := q.stmt.result.LastInsertID; id != 0 && q.stmt.kind == store.KindWrite {
		q.out = strconv.AppendInt(q.out, id, 10)
	} else {
		q.out = append(q.out, "null"...)
	}
	return nil
}

func (q *query) on(c *store.Conn) error { return q.runOn(c, q.read) }

// execute runs the one statement where it belongs, and gives the position that the
// answer is of.
func (q *query) execute(ctx context.Context, a *access) (store.Position, error) {
	if q.runFn == nil {
		q.runFn = q.on // bound once for the life of the pooled request
	}
	if q.read = q.stmt.onReader(); q.read {
		p := a.unit.Position()
		err := a.read(ctx, q.runFn)
		if !isReadOnly(err) {
			return p, err
		}
		q.read = false
	}
	q.wrote = true
	if q.stmt.needsManual() {
		return a.manual(ctx, q.runFn)
	}
	return a.write(ctx, q.runFn)
}

// query is POST query.
func (r *request) query(ctx context.Context, body []byte) error {
	q := &r.q
	q.limit, q.out = r.s.cfg.MaxResponse, r.out[:0]
	q.scan.Reset(body)
	q.parseStatement(&q.scan, nil)
	q.scan.End()
	if err := q.scan.Err(); err != nil {
		return badRequest("%v", err)
	}
	if err := q.check(); err != nil {
		return err
	}
	if len(r.idempotencyKey) > 0 {
		return r.keyedQuery(ctx, body)
	}
	p, err := q.execute(ctx, &r.data)
	if r.out = q.out; err != nil {
		return err
	}
	return r.sendResult(p)
}

// sendResult completes the result in r.q.out with its position and answers it.
func (r *request) sendResult(p store.Position) error {
	r.q.out = appendPositionField(r.q.out, p)
	r.out = r.q.out
	r.position(p)
	r.answer(200, r.out)
	return nil
}

// check refuses what a statement by itself may not be.
func (q *query) check() error {
	if err := q.stmt.classify(); err != nil {
		return err
	}
	if q.stmt.controls() {
		return httpserve.Errorf(400, "transaction_control", "a transaction is not begun or ended here: send its statements as one POST …/batch, which is a transaction, or keep one open over several requests of POST …/v2/pipeline (a libSQL client does)")
	}
	return nil
}
