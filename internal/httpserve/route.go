package httpserve

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// HandlerFunc serves one route. An error that it returns is answered, unless
// it has begun to answer itself.
type HandlerFunc func(w http.ResponseWriter, r *http.Request) error

// Route is one method on one path.
type Route struct {
	Method string
	// Path holds {name} for a segment that r.PathValue(name) gives.
	Path string
	Name string // label in metrics and name in the OpenAPI file
	// Open routes ask for no token.
	Open    bool
	Handler HandlerFunc
}

// routes finds the route of a request. It compares segments after decoding
// each alone, and never redirects: a path that is not spelled as a route is
// unknown.
type routes struct {
	list []Route
	segs [][]string // Path of list[i], split
}

func newRoutes(list []Route) *routes {
	rs := &routes{list: list}
	for _, r := range list {
		rs.segs = append(rs.segs, strings.Split(r.Path, "/"))
	}
	return rs
}

// match gives the route of a request, with its path values set. With no
// route it gives the methods that the path has, sorted; none: unknown path.
func (rs *routes) match(r *http.Request) (*Route, []string) {
	segs := strings.Split(r.URL.EscapedPath(), "/")
	for i, s := range segs {
		plain, err := url.PathUnescape(s)
		if err != nil {
			return nil, nil
		}
		segs[i] = plain
	}
	var allowed []string
	for i := range rs.list {
		route := &rs.list[i]
		if !fits(rs.segs[i], segs) {
			continue
		}
		if route.Method == r.Method || route.Method == http.MethodGet && r.Method == http.MethodHead {
			for k, s := range rs.segs[i] {
				if name, ok := variable(s); ok {
					r.SetPathValue(name, segs[k])
				}
			}
			return route, nil
		}
		allowed = append(allowed, route.Method)
		if route.Method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	slices.Sort(allowed)
	return nil, slices.Compact(allowed)
}

func fits(pattern, segs []string) bool {
	if len(pattern) != len(segs) {
		return false
	}
	for i, p := range pattern {
		if _, ok := variable(p); ok {
			continue // an empty name is the handler's to refuse
		}
		if p != segs[i] {
			return false
		}
	}
	return true
}

func variable(segment string) (string, bool) {
	if strings.HasPrefix(segment, "{") && strings.HasSuffix(segment, "}") {
		return segment[1 : len(segment)-1], true
	}
	return "", false
}
