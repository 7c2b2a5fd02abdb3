package proxy

import (
	"bytes"
	"strconv"

	"domicile/fsm"
)

// maxUnit is the length of the longest name of a unit: a tenant's, a dot and a
// bucket's number.
const maxUnit = fsm.MaxName + 1 + 10

// place is what a request's target names on the data path.
type place struct {
	tenant []byte // as in the target; valid unless bad says otherwise
	bucket uint32 // 0: none named
	bad    badName
}

// badName says what is wrong with a target under /t/.
type badName uint8

const (
	nameOK     badName = iota
	nameEmpty          // "/t/", "/t//acme": no tenant is named
	nameTenant         // no tenant can have that name
	nameBucket         // no bucket can have that number
)

// parsePlace reads what follows "/t/" in a path: "<tenant>", "<tenant>/…" or
// "<tenant>/b/<bucket>…". Nothing is decoded or cleaned: a node reads the same
// bytes in the same way, so an escape or an empty segment never names another
// tenant here than there.
func parsePlace(path []byte) place {
	name, rest, _ := bytes.Cut(path, slash)
	p := place{tenant: name}
	if len(name) == 0 {
		p.bad = nameEmpty
		return p
	}
	if !validName(name) {
		p.bad = nameTenant
		return p
	}
	if number, ok := bytes.CutPrefix(rest, bucketPrefix); ok {
		number, _, _ = bytes.Cut(number, slash)
		if p.bucket, ok = bucketNumber(number); !ok {
			p.bad = nameBucket
		}
	}
	return p
}

var (
	slash        = []byte("/")
	space        = []byte(" ")
	bucketPrefix = []byte("b/")
)

// tenantOfPath gives what stands for the tenant in a path, nil where that is none of the data
// path.
func tenantOfPath(path []byte) []byte {
	rest, ok := bytes.CutPrefix(path, tenantPrefix)
	if !ok {
		return nil
	}
	tenant, _, _ := bytes.Cut(rest, slash)
	return tenant
}

// validName is fsm.ValidName for bytes.
func validName(name []byte) bool {
	return len(name) <= fsm.MaxName && fsm.ValidName(string(name))
}

// bucketNumber reads a number from 1 on, written without leading zeros, so that
// each bucket has one address.
func bucketNumber(b []byte) (uint32, bool) {
	if len(b) == 0 || len(b) > 10 || b[0] == '0' {
		return 0, false
	}
	n := uint64(0)
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return uint32(n), n <= 1<<32-1
}

// unit appends the name of the unit that p names.
func (p place) unit(dst []byte) []byte {
	dst = append(dst, p.tenant...)
	if p.bucket != 0 {
		dst = strconv.AppendUint(append(dst, '.'), uint64(p.bucket), 10)
	}
	return dst
}

// tenantOfHost gives the tenant that host names under domain: "acme" for
// "acme.example.com:8090" under "example.com". Host names have no case; scratch
// is used for what has to be lowered.
func tenantOfHost(host []byte, domain string, scratch []byte) []byte {
	if i := bytes.LastIndexByte(host, ':'); i >= 0 {
		host = host[:i]
	}
	host = bytes.TrimSuffix(host, dot)
	n := len(host) - len(domain) - 1
	if domain == "" || n <= 0 || n > fsm.MaxName || host[n] != '.' {
		return nil
	}
	for i, c := range host[n+1:] {
		if lower(c) != domain[i] {
			return nil
		}
	}
	scratch = scratch[:0]
	for _, c := range host[:n] {
		scratch = append(scratch, lower(c))
	}
	if !validName(scratch) {
		return nil
	}
	return scratch
}

var dot = []byte(".")

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
