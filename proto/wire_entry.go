package proto

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"

	"domicile/fsm"
	"domicile/proto/internal/pb"
)

// MaxEntry is the greatest size of an encoded entry in bytes. Raft sends up to
// 64 entries in one message and writes them on its main loop; a big one holds
// everybody up.
const MaxEntry = 256 << 10

var (
	// ErrEntryTooBig is returned for an entry of more than MaxEntry bytes.
	ErrEntryTooBig = errors.New("the change is larger than 256 KiB; make it smaller")
	// ErrEntryUnknown is returned for an entry that a newer version wrote. Who
	// meets it in the log has to stop: to pass over it is to diverge.
	ErrEntryUnknown = errors.New("the log holds a command, or a field of one, that this version does not know; start a newer one")
)

// EncodeEntry gives the payload of a Raft log entry. Revision and Term are not
// in it: they are the log's own. It fails for an entry that is too big or has
// no command.
func EncodeEntry(e fsm.Entry) ([]byte, error) {
	m := &pb.Entry{At: int64(e.At), Decided: e.Decided, Key: e.Key, Fingerprint: e.Fingerprint}
	if err := putCommand(m, e.Cmd); err != nil {
		return nil, err
	}
	if m.SizeVT() > MaxEntry {
		return nil, ErrEntryTooBig
	}
	return m.MarshalVT()
}

// DecodeEntry reads the payload of the Raft log entry of that index and term.
// Every error is final: the bytes are garbled, too many, or of a newer version
// (ErrEntryUnknown).
func DecodeEntry(revision fsm.Revision, term uint64, b []byte) (fsm.Entry, error) {
	if len(b) > MaxEntry {
		return fsm.Entry{}, ErrEntryTooBig
	}
	var m pb.Entry
	if err := m.UnmarshalVT(b); err != nil {
		return fsm.Entry{}, fmt.Errorf("entry %d: %w", revision, err)
	}
	cmd := command(&m)
	if cmd == nil || unknownFields(m.ProtoReflect()) {
		return fsm.Entry{}, fmt.Errorf("entry %d: %w", revision, ErrEntryUnknown)
	}
	return fsm.Entry{
		Revision: revision, Term: term, At: fsm.Millis(m.At), Decided: m.Decided,
		Key: m.Key, Fingerprint: m.Fingerprint, Cmd: cmd,
	}, nil
}

// unknownFields reports whether m, or a message in it, holds fields that are
// not in domicile.proto.
func unknownFields(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	found := false
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Kind() != protoreflect.MessageKind {
			return true
		}
		if !f.IsList() {
			found = unknownFields(v.Message())
			return !found
		}
		for i := 0; i < v.List().Len() && !found; i++ {
			found = unknownFields(v.List().Get(i).Message())
		}
		return !found
	})
	return found
}
