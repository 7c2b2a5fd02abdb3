package hrana

import "slices"

// check follows the numbers of stored statements through the request, so that one
// that does not exist, or exists already, is found before anything is executed.
// stored are those that the stream begins with. A statement that cannot be stored
// for its size is taken as stored here, and fails where it is used.
func (r *Request) check(stored map[int32]string) error {
	if !r.usesStored() {
		return nil
	}
	ids := make(map[int32]bool, len(stored))
	for id := range stored {
		ids[id] = true
	}
	known := func(ref *sqlRef) bool { return !ref.hasID || ids[ref.id] }
	for i := range r.items {
		it := &r.items[i]
		ok := true
		switch it.op {
		case opStoreSQL:
			if ids[it.sql.id] {
				return protocolError("A stored statement with this sql_id exists already: close it first")
			}
			ids[it.sql.id] = true
		case opCloseSQL:
			delete(ids, it.sql.id)
		case opExecute:
			ok = known(&it.stmt.sql)
		case opBatch:
			ok = !slices.ContainsFunc(it.steps, func(s step) bool { return !known(&s.stmt.sql) })
		case opSequence, opDescribe:
			ok = known(&it.sql)
		case opClose, opGetAutocommit, opNone:
		}
		if !ok {
			return protocolError("No statement is stored under this sql_id")
		}
	}
	return nil
}

func (r *Request) usesStored() bool {
	for i := range r.items {
		it := &r.items[i]
		if it.sql.hasID || it.stmt.sql.hasID {
			return true
		}
		for j := range it.steps {
			if it.steps[j].stmt.sql.hasID {
				return true
			}
		}
	}
	return false
}
