package node

import (
	"bytes"
	"strconv"
	"strings"

	"domicile/fsm"
)

// action is what a data request asks for.
type action uint8

const (
	actUnknown action = iota
	actInfo
	actQuery
	actBatch
	actChanges
	actVersion // GET v2, v3
	actPipelineV2
	actPipelineV3
	actCursor
)

// methods that each action takes.
var methods = [...]string{
	actUnknown: "", actInfo: "GET, HEAD", actQuery: "POST", actBatch: "POST", actChanges: "GET",
	actVersion: "GET, HEAD", actPipelineV2: "POST", actPipelineV3: "POST", actCursor: "POST",
}

// dataPath is a path under /t/.
type dataPath struct {
	tenant []byte
	bucket uint64 // 0: the whole tenant
	action action
	bad    string // why the unit's name is not one
}

// segments walks the non-empty segments of a path. Segments are compared as they
// came: nothing that the node knows has a byte that needs encoding.
type segments struct{ rest []byte }

func (s *segments) next() []byte {
	for len(s.rest) > 0 {
		segment, rest, _ := bytes.Cut(s.rest, slash)
		s.rest = rest
		if len(segment) > 0 {
			return segment
		}
	}
	return nil
}

var slash = []byte{'/'}

// parseDataPath reads what follows /t/.
func parseDataPath(rest []byte) dataPath {
	s := segments{rest}
	var p dataPath
	p.tenant = s.next()
	if !validName(p.tenant) {
		p.bad = "a tenant's name is 1 to 64 characters of a-z, 0-9, _ and -"
		return p
	}
	word := s.next()
	if string(word) == "b" {
		n, err := strconv.ParseUint(string(s.next()), 10, 32)
		if err != nil || n == 0 {
			p.bad = "a bucket is a number from 1"
			return p
		}
		p.bucket = n
		word = s.next()
	}
	if string(word) == "db" {
		word = s.next()
	}
	second := s.next()
	if s.next() != nil {
		return p
	}
	p.action = findAction(string(word), string(second))
	return p
}

func findAction(first, second string) action {
	switch second {
	case "":
		switch first {
		case "":
			return actInfo
		case "query":
			return actQuery
		case "batch":
			return actBatch
		case "changes":
			return actChanges
		case "v2", "v3":
			return actVersion
		}
	case "pipeline":
		switch first {
		case "v2":
			return actPipelineV2
		case "v3":
			return actPipelineV3
		}
	case "cursor":
		if first == "v3" {
			return actCursor
		}
	}
	return actUnknown
}

func validName(name []byte) bool { return fsm.ValidName(string(name)) }

// unitText names a unit to people, for whom it is a tenant.
func unitText(unit string) string {
	if tenant, bucket, ok := strings.Cut(unit, "."); ok {
		return "bucket " + bucket + " of tenant " + tenant
	}
	return "tenant " + unit
}

// unit is the name of the unit that the path is about.
func (p *dataPath) unit() string {
	if p.bucket == 0 {
		return string(p.tenant)
	}
	return string(p.tenant) + "." + strconv.FormatUint(p.bucket, 10)
}
