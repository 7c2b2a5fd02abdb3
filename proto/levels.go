package proto

import (
	"strconv"
	"strings"

	"domicile/fsm"
)

// Headers between directories (spec §2.2, G4).
const (
	// HeaderDirectory says, in each answer below /_shard/, of which directory
	// HeaderRevision counts: "<authority>/<history>", see DirectoryName.
	HeaderDirectory = "Domicile-Directory"
	// HeaderAlso names a second directory that the answer is about, and its revision:
	// "<authority> <revision>", see Also.
	HeaderAlso = "Domicile-Also"
	// HeaderRelayedBetween names the group that relayed a request to another group:
	// its authority. Such a request goes to no third one.
	HeaderRelayedBetween = "Domicile-Relayed-Between"
	// HeaderOriginRegion names the region whose server was asked first, in a request that
	// was relayed between groups.
	HeaderOriginRegion = "Domicile-Origin-Region"
	// HeaderOriginPeer is the address of who asked that server: what the audit log tells.
	HeaderOriginPeer = "Domicile-Origin-Peer"
	// HeaderUnreachable lists the regions, separated by commas, that could not be asked
	// for their part of an answer.
	HeaderUnreachable = "Domicile-Unreachable"
)

// GlobalScope stands for the global group where a region's name would: in authorities
// and in HeaderUnreachable. No region has it.
const GlobalScope = "global"

// DirectoryParam, with GlobalScope as its value, asks GET /_shard/subscribe for the
// stream of the global directory, which every server of a region has a copy of.
const DirectoryParam = "directory"

// DirectoryName says whose directory, and of which history, a revision counts in.
type DirectoryName struct {
	Authority string
	History   uint64
}

// String gives the value of HeaderDirectory.
func (d DirectoryName) String() string {
	return d.Authority + "/" + strconv.FormatUint(d.History, 10)
}

// ParseDirectoryName reads the value of HeaderDirectory; false if it is none.
func ParseDirectoryName(s string) (DirectoryName, bool) {
	i := strings.LastIndexByte(s, '/')
	if i <= 0 {
		return DirectoryName{}, false
	}
	history, err := strconv.ParseUint(s[i+1:], 10, 64)
	return DirectoryName{Authority: s[:i], History: history}, err == nil
}

// Also is the value of HeaderAlso.
type Also struct {
	Authority string
	Revision  fsm.Revision
}

// String gives the value of HeaderAlso.
func (a Also) String() string {
	return a.Authority + " " + strconv.FormatUint(uint64(a.Revision), 10)
}

// ParseAlso reads the value of HeaderAlso; false if it is none.
func ParseAlso(s string) (Also, bool) {
	authority, number, ok := strings.Cut(s, " ")
	revision, err := strconv.ParseUint(number, 10, 64)
	return Also{Authority: authority, Revision: fsm.Revision(revision)}, ok && authority != "" && err == nil
}

// GroupCopy is what a region's server tells of its copy of the global directory in GET
// /_shard/group.
type GroupCopy struct {
	Authority string       `json:"authority"` // the global group that the region belongs to; "" until it is recorded
	History   uint64       `json:"history"`
	Revision  fsm.Revision `json:"revision"` // of the copy; 0 while there is none
	AgeMS     int64        `json:"age_ms"`   // how long ago the copy was known to be the newest
	Servers   []string     `json:"servers"`  // that it follows
	Problem   string       `json:"problem,omitempty"`
}
