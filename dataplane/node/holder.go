package node

import (
	"errors"
	"strings"
	"sync"

	"domicile/dataplane/node/store"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// unitLocks lets one admin call at a time change a unit, so that a check of its holder
// holds until the change is done: a newer holder's call on the same unit comes
// afterwards and sees what was done, or before and has the older one refused.
type unitLocks struct {
	mu   sync.Mutex
	held map[string]*unitLock
}

type unitLock struct {
	mu    sync.Mutex
	users int // that have it or wait for it; guarded by unitLocks.mu
}

func (l *unitLocks) lock(unit string) (unlock func()) {
	l.mu.Lock()
	if l.held == nil {
		l.held = make(map[string]*unitLock)
	}
	u := l.held[unit]
	if u == nil {
		u = &unitLock{}
		l.held[unit] = u
	}
	u.users++
	l.mu.Unlock()
	u.mu.Lock()
	return func() {
		u.mu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if u.users--; u.users == 0 {
			delete(l.held, unit)
		}
	}
}

// validHolder checks what a call says of its maker: all of it, or nothing, for which
// named is false. A node is tied for good to what it takes here.
func validHolder(h proto.Holder) (named bool, err error) {
	if h == (proto.Holder{}) {
		return false, nil
	}
	if !validAuthority(h.Authority) || h.History == 0 || h.Term == 0 {
		return false, badRequest("authority, history and term belong together: an authority is a cluster's id, a slash, and global or a region's name; history and term count from 1")
	}
	return true, nil
}

// validAuthority reports whether a is "<cluster>/<region>" or "<cluster>/global".
func validAuthority(a string) bool {
	cluster, group, ok := strings.Cut(a, "/")
	blank := func(c rune) bool { return c <= ' ' || c == 0x7f }
	return ok && cluster != "" && len(a) <= 256 && !strings.ContainsFunc(cluster, blank) && fsm.ValidName(group)
}

// holderOf is the holder that a call names in its body, or in its header.
func (r *request) holderOf(body proto.Holder) (h proto.Holder, named bool, err error) {
	if named, err = validHolder(body); err != nil || named && r.holder == nil {
		return body, named, err
	}
	if r.holder == nil {
		return h, false, nil
	}
	if h, err = proto.ParseHolder(string(r.holder)); err != nil {
		return h, false, badRequest("%v", err)
	}
	if named && h != body {
		return h, false, badRequest("the body and the header %s name different holders", proto.HeaderHolder)
	}
	_, err = validHolder(h)
	return h, true, err
}

// hold admits a changing call by its holder: one that is newer is kept on disk before
// anything is done, one that is older or another authority's is refused.
func (r *request) hold(body proto.Holder) error {
	h, named, err := r.holderOf(body)
	if err != nil {
		return err
	}
	if !named {
		return httpserve.Errorf(400, "holder_required", "this call changes the node and must name who makes it: authority, history and term in the body, or the header %s", proto.HeaderHolder)
	}
	r.byHand = false
	r.by = store.Holder{Authority: h.Authority, History: h.History, Term: h.Term}
	if err := r.s.takeHolder(h); err != nil {
		return err
	}
	return r.sentBefore()
}

// hearReader takes the holder that a read names: a group that is being recovered reads what
// the node holds, and from then on nothing of an older history counts here. Grants
// wait meanwhile: one of an older holder was taken before, and shows in what is read, or
// is refused.
func (r *request) hearReader() error {
	h, named, err := r.holderOf(proto.Holder{})
	if err != nil || !named {
		return err
	}
	r.s.grants.mu.Lock()
	defer r.s.grants.mu.Unlock()
	if err := r.s.takeHolder(h); err != nil {
		return err
	}
	if l := r.s.fence.lease; l != nil {
		l.Supersede(h)
	}
	return nil
}

func (s *Server) takeHolder(h proto.Holder) error {
	for {
		old := s.store.Holder()
		have := proto.Holder{Authority: old.Authority, History: old.History, Term: old.Term}
		switch {
		case old.Authority != "" && old.Authority != h.Authority:
			return holderRefused(have, "this node belongs to another authority")
		case have.Newer(h):
			return holderRefused(have, "this node has heard a newer holder")
		case have == h:
			return nil
		}
		err := s.store.SetHolder(old, store.Holder{Authority: h.Authority, History: h.History, Term: h.Term})
		if err == nil {
			s.log.Info("holder changed", "authority", h.Authority, "history", h.History, "term", h.Term)
			return nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

func holderRefused(have proto.Holder, why string) error {
	e := httpserve.Errorf(409, codeHolderNewer, "%s: authority %s, history %d, term %d", why, have.Authority, have.History, have.Term)
	e.Fields = map[string]any{"authority": have.Authority, "history": have.History, "term": have.Term}
	return e
}

// changeHolder is POST holder: the authority that the node belongs to gives it to the
// next one. No grant is being taken meanwhile: once this is answered, none of the former
// authority's takes effect any more.
func (r *request) changeHolder() error {
	var body proto.HandOver
	if err := r.object(&body); err != nil {
		return err
	}
	if named, err := validHolder(body.Next); err != nil || !named {
		return badRequest("next names the authority, history and term that the node goes over to")
	}
	if named, err := validHolder(body.Holder); err != nil || named && body.Authority == body.Next.Authority {
		return badRequest("next is another authority than the one that gives the node away")
	}
	r.s.grants.mu.Lock()
	defer r.s.grants.mu.Unlock()
	have := r.s.store.Holder()
	if have.Authority == body.Next.Authority {
		return r.json(200, proto.Holder{Authority: have.Authority, History: have.History, Term: have.Term}) // its answer was lost
	}
	if given := r.s.store.Handed().Jobs[body.Authority]; body.Job != 0 && body.Job <= given {
		e := httpserve.Errorf(409, proto.CodeStaleCall, "this node was given away by job %d of %s, or a later one, and has come back since", body.Job, body.Authority)
		e.Fields = map[string]any{"authority": have.Authority, "history": have.History, "term": have.Term, "job": given}
		return e
	}
	if err := r.hold(body.Holder); err != nil {
		return err
	}
	return r.goOver(&body)
}

func (r *request) goOver(body *proto.HandOver) error {
	next := store.Holder{Authority: body.Next.Authority, History: body.Next.History, Term: body.Next.Term}
	err := r.s.store.HandOver(r.s.store.Holder(), next, body.Job, body.Call)
	if errors.Is(err, store.ErrConflict) {
		now := r.s.store.Holder()
		return holderRefused(proto.Holder{Authority: now.Authority, History: now.History, Term: now.Term}, "another holder came in between")
	}
	if err != nil {
		return err
	}
	r.s.log.Info("authority changed", "authority", next.Authority, "history", next.History, "term", next.Term)
	return r.json(200, body.Next)
}

// sentBefore refuses a call that its leader sent in an earlier time under it: the node was
// another authority's since, and what it was told before is not known any more.
func (r *request) sentBefore() error {
	number, err := r.callNumber()
	if err != nil || number == 0 {
		return err
	}
	if h := r.s.store.Handed(); r.by == h.To && number < h.Call {
		e := httpserve.Errorf(409, proto.CodeStaleCall, "this call was sent before the node came to %s, number %d of %d", h.To.Authority, number, h.Call)
		e.Fields = map[string]any{"call": h.Call}
		return e
	}
	return nil
}
