package hrana

import (
	"strconv"

	"domicile/dataplane/node/jsonscan"
)

// Begin appends the columns. It is part of RowWriter.
func (r *run) Begin(rows Rows, stream bool) {
	r.begun = true
	if r.cursor != nil {
		r.cursor.stream = stream
		r.out = append(r.out, `,"cols":[`...)
	}
	for i := range rows.Columns() {
		if i > 0 {
			r.out = append(r.out, ',')
		}
		r.out = appendColumn(r.out, rows.Name(i), rows.DeclType(i))
	}
	if r.cursor != nil {
		r.out = append(r.out, "]}\n"...)
		return
	}
	r.out = append(r.out, `],"rows":[`...)
}

// Row appends a row. It is part of RowWriter.
func (r *run) Row(rows Rows) error {
	r.rows++
	if !r.wantRows {
		return nil
	}
	if r.cursor != nil {
		r.out = append(r.out, `{"type":"row","row":`...)
		r.appendRow(rows)
		r.out = append(r.out, "}\n"...)
		return r.spill()
	}
	if r.rows > 1 {
		r.out = append(r.out, ',')
	}
	r.appendRow(rows)
	if len(r.out)-r.base > r.limit {
		return errTooLarge
	}
	return nil
}

func (r *run) appendRow(rows Rows) {
	out := append(r.out, '[')
	for i := range rows.Columns() {
		if i > 0 {
			out = append(out, ',')
		}
		switch rows.Kind(i) {
		case Null:
			out = append(out, `{"type":"null"}`...)
		case Integer:
			out = append(out, `{"type":"integer","value":"`...)
			out = strconv.AppendInt(out, rows.Int64(i), 10)
			out = append(out, `"}`...)
		case Float:
			out = append(out, `{"type":"float","value":`...)
			out = jsonscan.AppendFloat(out, rows.Float64(i))
			out = append(out, '}')
		case Text:
			out = append(out, `{"type":"text","value":`...)
			out = jsonscan.AppendString(out, rows.Bytes(i))
			out = append(out, '}')
		case Blob:
			out = append(out, `{"type":"blob","base64":`...)
			out = jsonscan.AppendBase64(out, rows.Bytes(i))
			out = append(out, '}')
		}
	}
	r.out = append(out, ']')
}
