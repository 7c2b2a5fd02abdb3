package proto_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"domicile/fsm"
	"domicile/proto"
)

// An entry of a newer version stops the server, wherever it is newer (O7).
func TestO7AnUnknownCommandOrFieldIsAnErrorNotSkipped(t *testing.T) {
	field := func(n protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), value)
	}
	member := field(1, []byte("s1"))
	for name, b := range map[string][]byte{
		"no command":                  {},
		"a command without a number":  field(99, nil),
		"a field beside the command":  append(field(18, field(1, member)), field(9, []byte("x"))...),
		"a field in the command":      field(18, append(field(1, member), field(7, []byte("x"))...)),
		"a field in the member":       field(18, field(1, append(member, field(9, []byte("x"))...))),
		"a field in one of a list":    field(22, field(1, field(12, []byte("x")))),
		"a newer command replaces it": append(field(28, nil), field(99, nil)...),
	} {
		if _, err := proto.DecodeEntry(7, 1, b); !errors.Is(err, proto.ErrEntryUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if e, err := proto.DecodeEntry(7, 1, field(18, field(1, member))); err != nil || e.Cmd.(*fsm.PutMember).Member.ID != "s1" {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := proto.DecodeEntry(7, 1, []byte{0xff}); err == nil {
		t.Error("garbled bytes were read")
	}
}

func TestABigEntryIsRefused(t *testing.T) {
	e := fsm.Entry{Cmd: &fsm.CreateTenant{Name: "a", Schema: strings.Repeat("x", fsm.MaxSchema)}}
	b, err := proto.EncodeEntry(e)
	if err != nil {
		t.Fatalf("the greatest schema that is taken does not fit: %v", err)
	}
	e.Cmd = &fsm.NoteJob{Problem: strings.Repeat("x", proto.MaxEntry)}
	if _, err := proto.EncodeEntry(e); !errors.Is(err, proto.ErrEntryTooBig) {
		t.Error(err)
	}
	if _, err := proto.DecodeEntry(1, 1, append(b, make([]byte, proto.MaxEntry)...)); !errors.Is(err, proto.ErrEntryTooBig) {
		t.Error(err)
	}
	if _, err := proto.EncodeEntry(fsm.Entry{}); err == nil {
		t.Error("an entry without a command was encoded")
	}
}
