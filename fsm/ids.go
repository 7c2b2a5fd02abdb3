package fsm

import (
	"strconv"
	"strings"
)

// Names of nodes, tenants, regions and zones are [a-z0-9_-], 1 to 64
// characters (requirement N1). The empty RegionName is the unnamed region
// (N4), the empty ZoneName a zone that was not recorded.
type (
	NodeName   string
	TenantName string
	RegionName string
	ZoneName   string
	MemberID   string
)

// UnitName names what is placed: "acme" is a whole tenant, "acme.7" its bucket
// 7. Tenants' names hold no dot.
type UnitName string

// Revision counts the directory's changes: the Raft index of the last command
// that was applied. It grows with every command and is sparse.
type Revision uint64

// UnitID is the revision of the entry that created the unit, so that a late
// call for a former unit of the same name never meets a newer one.
type UnitID uint64

// NodeID is the revision of the entry that first recorded the node.
type NodeID uint64

// JobID is the revision of the entry that began the job.
type JobID uint64

// String gives the number by which people and nodes are told of a job.
func (id JobID) String() string { return strconv.FormatUint(uint64(id), 10) }

// Millis is a time in milliseconds since the Unix epoch, stamped by the
// proposer; never read from a clock here.
type Millis int64

// MaxName is the greatest length of a name in bytes.
const MaxName = 64

// ValidName reports whether s may name a node, a tenant, a region or a zone.
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > MaxName {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// Unit names bucket b of tenant t; bucket 0 is the whole tenant.
func Unit(t TenantName, b uint32) UnitName {
	if b == 0 {
		return UnitName(t)
	}
	return UnitName(string(t) + "." + strconv.FormatUint(uint64(b), 10))
}

// Split gives the tenant and the bucket (0 for a whole tenant) that u names.
// It reports false for a text that names no unit.
func (u UnitName) Split() (TenantName, uint32, bool) {
	t, b, dotted := strings.Cut(string(u), ".")
	if !ValidName(t) {
		return "", 0, false
	}
	if !dotted {
		return TenantName(t), 0, true
	}
	n, err := strconv.ParseUint(b, 10, 32)
	if err != nil || n == 0 || b != strconv.FormatUint(n, 10) {
		return "", 0, false
	}
	return TenantName(t), uint32(n), true
}
