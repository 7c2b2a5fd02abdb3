package fsm

// MinVersion is the command version from which servers know cmd. A leader
// proposes it only when the directory's Level has reached it.
func MinVersion(cmd Command) uint32 { return 1 }

// Apply takes the next committed entry.
func (s *State) Apply(e Entry) (Result, []Event) {
	s.revision = e.Revision
	return Result{}, nil
}
