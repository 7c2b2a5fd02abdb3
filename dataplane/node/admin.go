package node

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"domicile/dataplane/node/store"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// maxAdminBody is the greatest body of an admin call but a file's.
const maxAdminBody = 4 << 20

// serveAdmin answers what is under /_admin/. The token was checked.
func (r *request) serveAdmin(rest []byte) error {
	s := segments{rest}
	first, unit, verb := string(s.next()), string(s.next()), s.next()
	if s.next() != nil {
		return errUnknownRoute()
	}
	if unit == "" {
		return r.serveAdminRoot(first)
	}
	if first != "tenants" {
		return errUnknownRoute()
	}
	if _, _, ok := fsm.UnitName(unit).Split(); !ok {
		return badRequest("a unit is a tenant's name, 1 to 64 characters of a-z, 0-9, _ and -, or that, a dot and a bucket's number")
	}
	handlers, ok := unitRoutes[string(verb)]
	if !ok {
		return errUnknownRoute()
	}
	method := string(r.ctx.Method())
	if method == "HEAD" {
		method = "GET"
	}
	h, ok := handlers[method]
	if !ok {
		return r.methodNotAllowed(methodsOf(handlers))
	}
	return h(r, r.s.context(r.began), unit)
}

type unitHandler func(r *request, ctx context.Context, unit string) error

// unitRoutes are those of /_admin/tenants/<unit>/<verb>, by verb and method.
var unitRoutes = map[string]map[string]unitHandler{
	"":         {"PUT": (*request).putUnit, "DELETE": (*request).deleteUnit},
	"freeze":   {"POST": (*request).freeze},
	"promote":  {"POST": (*request).promoteUnit},
	"follow":   {"POST": (*request).followUnit},
	"thaw":     {"POST": (*request).thaw},
	"release":  {"POST": (*request).release},
	"position": {"GET": (*request).unitPosition},
	"file":     {"GET": (*request).getFile, "PUT": (*request).putFile},
	"schema":   {"POST": (*request).schema},
	"query":    {"POST": (*request).adminQuery},
}

func methodsOf(handlers map[string]unitHandler) string {
	var all []string
	for m := range handlers {
		all = append(all, m)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// serveAdminRoot answers the routes that are about the whole node.
func (r *request) serveAdminRoot(name string) error {
	switch name {
	case "stats":
		return r.get(r.stats)
	case "open":
		return r.get(r.openUnits)
	case "tenants":
		return r.get(r.tenants)
	case "sizes":
		return r.get(r.sizes)
	case "units":
		return r.get(r.units)
	case "copies":
		return r.get(r.copies)
	case "lease":
		return r.lease()
	}
	change, ok := rootChanges[name]
	switch {
	case !ok:
		return errUnknownRoute()
	case !r.ctx.IsPost():
		return r.methodNotAllowed("POST")
	}
	return change(r)
}

// rootChanges are the calls that change more than one unit, or the node.
var rootChanges = map[string]func(*request) error{
	"holder":   (*request).changeHolder,
	"promote":  (*request).promoteUnits,
	"follow":   (*request).followUnits,
	"handover": (*request).handOver,
	"thaw":     (*request).thawUnits,
}

// stats is GET stats. memory is the process's resident bytes: SQLite does not say what
// each open unit holds.
func (r *request) stats() error {
	var st proto.NodeStats
	for _, size := range r.s.store.Sizes() {
		st.Tenants++
		st.Disk += uint64(size)
	}
	st.Free, _ = r.s.store.Free() // 0 says that it is not known
	st.Open = uint64(r.s.store.Stats().OpenUnits)
	st.Memory = residentBytes()
	st.Boot, st.Lease = r.s.boot, r.s.cfg.Lease
	if h := r.s.store.Holder(); h.Authority != "" {
		st.Holder = &proto.Holder{Authority: h.Authority, History: h.History, Term: h.Term}
	}
	return r.json(200, st)
}

// residentBytes is what /proc says, 0 where there is none.
func residentBytes() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

// openUnit is an entry of GET open.
type openUnit struct {
	Name     string `json:"name"`
	Bytes    int64  `json:"bytes"` // on disk
	Frozen   bool   `json:"frozen"`
	Position string `json:"position"`
}

func (r *request) openUnits() error {
	list := []openUnit{}
	for _, name := range r.s.store.OpenUnits() {
		u, release, err := r.s.store.Acquire(r.s.context(r.began), name)
		if errors.Is(err, store.ErrUnknownUnit) || errors.Is(err, store.ErrGone) {
			continue // deleted meanwhile
		}
		if err != nil {
			return err
		}
		left, _ := u.Frozen()
		list = append(list, openUnit{name, u.Bytes(), left > 0, u.Position().String()})
		release()
	}
	slices.SortFunc(list, func(a, b openUnit) int { return strings.Compare(a.Name, b.Name) })
	return r.json(200, list)
}

func (r *request) tenants() error {
	records, err := r.s.store.List("", 0)
	if err != nil {
		return err
	}
	names := make([]string, len(records))
	for i := range records {
		names[i] = records[i].Name
	}
	return r.json(200, names)
}

func (r *request) sizes() error {
	all := map[string]int64{}
	for name, size := range r.s.store.Sizes() {
		all[name] = size
	}
	return r.json(200, all)
}

func roleOf(rec *store.Record) string {
	if rec.State.IsCopy() {
		return "replica"
	}
	return "primary"
}

// object decodes an admin call's body.
func (r *request) object(v any) error { return r.objectUpTo(maxAdminBody, v) }

func (r *request) objectUpTo(limit int, v any) error {
	body, err := r.readBody(limit)
	if err != nil {
		return err
	}
	return httpserve.DecodeObject(body, v)
}

// unitIDHeader is the id that a call without a JSON body is about: the header
// Domicile-Unit-Id, 0 where there is none.
func (r *request) unitIDHeader() (uint64, error) {
	if r.unitID == nil {
		return 0, nil
	}
	id, err := strconv.ParseUint(string(r.unitID), 10, 64)
	if err != nil || id == 0 || id > math.MaxInt64 {
		return 0, badRequest("%s: a number from 1 is wanted", proto.HeaderUnitID)
	}
	return id, nil
}
