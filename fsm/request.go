package fsm

// Bounds of what is remembered for Idempotency-Keys (spec §2.2): the answers
// to the last RequestsKept changes that had one, each for RequestAge.
const (
	RequestsKept        = 100_000
	RequestAge   Millis = 24 * 60 * 60 * 1000
	MaxKey              = 256 // bytes of a key, and of a fingerprint
)

// expiredAtOnce is how many expired requests one entry forgets at most, so
// that none pays for a day's.
const expiredAtOnce = 16

// replay answers an entry whose key is known.
func (s *State) replay(e *Entry) (Result, bool) {
	q, ok := s.requests.Get(e.Key)
	if !ok {
		return Result{}, false
	}
	if s.expired(q) {
		s.forget(q)
		return Result{}, false
	}
	if q.Fingerprint != e.Fingerprint {
		return refused(refuse(CodeKeyReused,
			"this Idempotency-Key was used for another request; use a new one for each change")), true
	}
	r := q.Result
	r.Replayed = true
	if _, running := s.running.Get(q.Job); !running {
		// A create's outcome is in the result by now (settle); a delete has none
		// but that the tenant is gone.
		r.Job = 0
	}
	return r, true
}

func (s *State) expired(q *Request) bool { return s.now-q.At > RequestAge }

// remember keeps r as the answer to e's key and forgets what is too old.
func (s *State) remember(e *Entry, r Result) {
	if len(e.Key) > MaxKey || len(e.Fingerprint) > MaxKey {
		return
	}
	s.requests.Set(e.Key, &Request{
		Key: e.Key, Fingerprint: e.Fingerprint, At: s.now, Revision: e.Revision, Result: r, Job: r.Job,
	})
	s.answered.Set(e.Revision, e.Key)
	for range expiredAtOnce {
		_, key, ok := s.answered.Min()
		if !ok {
			return
		}
		q, _ := s.requests.Get(key)
		if s.requests.Len() <= RequestsKept && !s.expired(q) {
			return
		}
		s.forget(q)
	}
}

func (s *State) forget(q *Request) {
	s.requests.Delete(q.Key)
	s.answered.Delete(q.Revision)
}

// settle makes outcome the answer to the key that began a job, if it is still
// remembered. Where a region could not be asked nothing has happened: the key is forgotten,
// and what is asked under it again is tried again.
func (s *State) settle(j *Job, outcome Result) {
	q, ok := s.requests.Get(j.Request)
	if !ok || j.Request == "" || q.Job != j.ID {
		return
	}
	if r := outcome.Refusal; r != nil && (r.Code == CodeRegionUnreachable || r.Code == CodeRecovering) {
		s.forget(q)
		return
	}
	settled := *q
	settled.Result = outcome
	s.requests.Set(q.Key, &settled)
}
