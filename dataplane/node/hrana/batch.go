package hrana

type condOp uint8

const (
	condNone condOp = iota
	condOK
	condError
	condNot
	condAnd
	condOr
	condAutocommit
)

// cond is a node of a step's condition; its operands are chained by next. Indices
// are into Request.conds, -1 is none.
type cond struct {
	op    condOp
	step  int32
	first int32
	next  int32
}

// parseBatch reads a batch, checking that conditions look back only.
func (r *Request) parseBatch() []step {
	s := &r.scan
	start := len(r.steps)
	seen := false
	s.Open('{')
	for s.More('}') {
		if string(s.Key()) != "steps" {
			s.Skip()
			continue
		}
		seen = true
		r.steps = r.steps[:start]
		s.Open('[')
		for s.More(']') {
			r.parseStep(int32(len(r.steps) - start))
		}
	}
	if !seen {
		s.Fail("a batch needs steps")
	}
	return r.steps[start:len(r.steps):len(r.steps)]
}

func (r *Request) parseStep(index int32) {
	s := &r.scan
	st := step{cond: -1}
	hasStmt := false
	s.Open('{')
	for s.More('}') {
		switch string(s.Key()) {
		case "condition":
			if !s.TryNull() {
				st.cond = r.parseCond(index)
			}
		case "stmt":
			hasStmt = true
			r.parseStmt(&st.stmt)
		default:
			s.Skip()
		}
	}
	if !hasStmt {
		s.Fail("a step needs a stmt")
	}
	r.steps = append(r.steps, st)
}

func (r *Request) parseCond(index int32) int32 {
	s := &r.scan
	c := cond{step: -1, first: -1, next: -1}
	var operand, operands int32 = -1, -1
	hasOperands := false
	s.Open('{')
	for s.More('}') {
		switch string(s.Key()) {
		case "type":
			c.op = r.parseCondOp()
		case "step":
			c.step = r.parseInt32()
			if c.step < 0 || c.step >= index {
				s.Fail("a condition names a step before its own")
			}
		case "cond":
			operand = r.parseCond(index)
		case "conds":
			hasOperands = true
			operands = r.parseConds(index)
		default:
			s.Skip()
		}
	}
	switch c.op {
	case condNone:
		s.Fail("a condition's type is missing")
	case condOK, condError:
		if c.step < 0 {
			s.Fail("the condition needs a step")
		}
	case condNot:
		if c.first = operand; operand < 0 {
			s.Fail("the condition not needs a cond")
		}
	case condAnd, condOr:
		if c.first = operands; !hasOperands {
			s.Fail("the conditions and, or need conds")
		}
	case condAutocommit:
	}
	r.conds = append(r.conds, c)
	return int32(len(r.conds) - 1)
}

func (r *Request) parseConds(index int32) int32 {
	s := &r.scan
	var first, last int32 = -1, -1
	s.Open('[')
	for s.More(']') {
		c := r.parseCond(index)
		if first < 0 {
			first = c
		} else {
			r.conds[last].next = c
		}
		last = c
	}
	return first
}

func (r *Request) parseCondOp() condOp {
	name := r.scan.String()
	switch string(name) {
	case "ok":
		return condOK
	case "error":
		return condError
	case "not":
		return condNot
	case "and":
		return condAnd
	case "or":
		return condOr
	case "is_autocommit":
		if r.version >= V3 {
			return condAutocommit
		}
	}
	r.scan.Fail("an unknown type of condition in this version of the protocol")
	return condNone
}

type stepState uint8

const (
	stepSkipped stepState = iota
	stepOK
	stepFailed
)

// holds evaluates a condition. An empty and holds, an empty or does not.
func (r *run) holds(index int32) bool {
	c := r.req.conds[index]
	switch c.op {
	case condOK:
		return r.states[c.step] == stepOK
	case condError:
		return r.states[c.step] == stepFailed
	case condNot:
		return !r.holds(c.first)
	case condAnd, condOr:
		for i := c.first; i >= 0; i = r.req.conds[i].next {
			if r.holds(i) != (c.op == condAnd) {
				return c.op == condOr
			}
		}
		return c.op == condAnd
	case condAutocommit:
		return r.sess.Autocommit()
	case condNone:
	}
	panic("BUG: a condition of no type was let through")
}
