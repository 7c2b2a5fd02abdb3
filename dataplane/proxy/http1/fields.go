package http1

// fieldKind names the header fields that mean something to a proxy.
type fieldKind uint8

const (
	fieldOther fieldKind = iota
	fieldHost
	fieldConnection
	fieldContentLength
	fieldTransferEncoding
	fieldUpgrade
	fieldExpect
	fieldRequestID
	fieldIdempotencyKey
	fieldKept     // ordinary, but Connection may not name it
	fieldOurs     // added by proxies: a client's is dropped
	fieldHop      // dropped in both directions
	fieldAliasing // read as a length by lenient servers: refused
)

// field is a header line: offsets into its message's buffer.
type field struct {
	name, colon, value, valueEnd, end uint32
	kind                              fieldKind
	drop                              bool
}

// kindOf classifies a field name. By length first: nearly all names are told
// apart, or found to be ordinary, without comparing.
func kindOf(name []byte) fieldKind {
	if len(name) > len(oursPrefix) && name[len(oursPrefix)-1] == '-' {
		if k := kindOfOurs(name); k != fieldOther {
			return k
		}
	}
	switch len(name) {
	case 2:
		return match(name, "te", fieldHop)
	case 4:
		return match(name, "host", fieldHost)
	case 6:
		if k := match(name, "expect", fieldExpect); k != fieldOther {
			return k
		}
		return match(name, "cookie", fieldKept)
	case 7:
		return match(name, "upgrade", fieldUpgrade)
	case 10:
		if k := match(name, "connection", fieldConnection); k != fieldOther {
			return k
		}
		return match(name, "keep-alive", fieldHop)
	case 11:
		return match(name, "traceparent", fieldKept)
	case 12:
		if k := match(name, "x-request-id", fieldRequestID); k != fieldOther {
			return k
		}
		return match(name, "content-type", fieldKept)
	case 13:
		return match(name, "authorization", fieldKept)
	case 14:
		return kind14(name)
	case 15:
		return match(name, "idempotency-key", fieldIdempotencyKey)
	case 16:
		if k := match(name, "proxy-connection", fieldHop); k != fieldOther {
			return k
		}
		return match(name, "content-encoding", fieldKept)
	case 17:
		return kind17(name)
	case 18:
		return match(name, "proxy-authenticate", fieldHop)
	case 19:
		return match(name, "proxy-authorization", fieldHop)
	}
	return fieldOther
}

func kind14(name []byte) fieldKind {
	switch {
	case foldEqual(name, "content-length"):
		return fieldContentLength
	case foldEqual(name, "content_length"):
		return fieldAliasing
	case foldEqual(name, "http2-settings"):
		return fieldHop
	}
	return fieldOther
}

func kind17(name []byte) fieldKind {
	switch {
	case foldEqual(name, "transfer-encoding"):
		return fieldTransferEncoding
	case foldEqual(name, "transfer_encoding"):
		return fieldAliasing
	}
	return fieldOther
}

const oursPrefix = "domicile-"

// kindOfOurs finds the fields of Domicile itself; name is longer than the prefix.
func kindOfOurs(name []byte) fieldKind {
	if !foldEqual(name[:len(oursPrefix)], oursPrefix) {
		return fieldOther
	}
	if rest := name[len(oursPrefix):]; foldEqual(rest, "client") || foldEqual(rest, "route") {
		return fieldOurs
	}
	return fieldKept
}

func match(name []byte, s string, k fieldKind) fieldKind {
	if foldEqual(name, s) {
		return k
	}
	return fieldOther
}

// forbiddenTrailers may not come after a body: they would mean something as a
// header (RFC 9110 §6.5.1). Fields of other kinds than fieldOther are forbidden
// as well.
var forbiddenTrailers = []string{
	"trailer", "content-range", "set-cookie", "age", "cache-control", "expires", "date", "location",
	"retry-after", "vary", "warning", "max-forwards", "pragma", "range", "if-match", "if-none-match",
	"if-modified-since", "if-unmodified-since", "if-range", "www-authenticate",
}

func forbiddenTrailer(name []byte) bool {
	if kindOf(name) != fieldOther {
		return true
	}
	for _, s := range forbiddenTrailers {
		if foldEqual(name, s) {
			return true
		}
	}
	return false
}
