package proxy

import (
	"bytes"
	"strings"
	"testing"

	"domicile/fsm"
)

func TestPlaceIsWhatTheNodeReads(t *testing.T) {
	for path, want := range map[string]string{
		"acme":                             "acme",
		"acme/":                            "acme",
		"acme/db/v2/pipeline":              "acme",
		"acme//db":                         "acme",
		"acme/../beta/query":               "acme",
		"acme/b":                           "acme",
		"a_c-m9/query":                     "a_c-m9",
		"acme/b/7/query":                   "acme.7",
		"acme/b/7":                         "acme.7",
		"acme/b/4294967295":                "acme.4294967295",
		"acme/c/b/7":                       "acme",
		strings.Repeat("a", 64) + "/query": strings.Repeat("a", 64),
	} {
		p := parsePlace([]byte(path))
		if got := string(p.unit(nil)); p.bad != nameOK || got != want {
			t.Errorf("%q: got %q, bad %d, want %q", path, got, p.bad, want)
		}
	}
	for path, want := range map[string]badName{
		"":                      nameEmpty,
		"/acme":                 nameEmpty,
		"Acme/query":            nameTenant,
		"ac%6de/query":          nameTenant,
		"%61cme":                nameTenant,
		"acme.7/query":          nameTenant,
		"..":                    nameTenant,
		"acme;x/query":          nameTenant,
		strings.Repeat("a", 65): nameTenant,
		"acme/b/":               nameBucket,
		"acme/b/0":              nameBucket,
		"acme/b/07":             nameBucket,
		"acme/b/x":              nameBucket,
		"acme/b/-1":             nameBucket,
		"acme/b/4294967296":     nameBucket,
		"acme/b/99999999999/q":  nameBucket,
		"acme/b//7":             nameBucket,
		"acme/b/7%30/query":     nameBucket,
		"\xffacme":              nameTenant,
		"acme\x00/query":        nameTenant,
		"acme /query":           nameTenant,
		"ac\u00e9me":            nameTenant,
	} {
		if p := parsePlace([]byte(path)); p.bad != want {
			t.Errorf("%q: bad %d (%q), want %d", path, p.bad, p.unit(nil), want)
		}
	}
}

func TestTenantOfHost(t *testing.T) {
	var scratch [fsm.MaxName]byte
	for host, want := range map[string]string{
		"acme.example.com":                       "acme",
		"acme.example.com:8090":                  "acme",
		"ACME.Example.COM":                       "acme",
		"acme.example.com.":                      "acme",
		"a_b-1.example.com":                      "a_b-1",
		"example.com":                            "",
		".example.com":                           "",
		"a.b.example.com":                        "",
		"acme.example.org":                       "",
		"acmeexample.com":                        "",
		"acme.evilexample.com":                   "",
		"acme.example.com.evil":                  "",
		"127.0.0.1:8090":                         "",
		"[::1]:8090":                             "",
		"":                                       "",
		"ac%6de.example.com":                     "",
		strings.Repeat("a", 65) + ".example.com": "",
	} {
		if got := string(tenantOfHost([]byte(host), "example.com", scratch[:])); got != want {
			t.Errorf("%q: got %q, want %q", host, got, want)
		}
	}
	if got := tenantOfHost([]byte("acme."), "", scratch[:]); got != nil {
		t.Errorf("without a domain: got %q", got)
	}
}

func FuzzPlace(f *testing.F) {
	for _, s := range []string{"acme/b/7/query", "/acme", "a/b/00", "..", "acme/b/4294967296"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, path []byte) {
		p := parsePlace(path)
		if p.bad != nameOK {
			return
		}
		unit := p.unit(nil)
		tenant, bucket, ok := fsm.UnitName(unit).Split()
		if !ok || string(tenant) != string(p.tenant) || bucket != p.bucket || len(unit) > maxUnit {
			t.Errorf("%q names %q, which is no unit", path, unit)
		}
		if !bytes.HasPrefix(path, p.tenant) {
			t.Errorf("%q: the tenant %q is not what stands there", path, p.tenant)
		}
	})
}
