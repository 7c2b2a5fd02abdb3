package controlplane

import (
	"domicile/controlplane/loops"
	"domicile/fsm"
)

// noteBetween keeps what the planner knows of moves from and to other directories, for
// those who ask this leader.
func (s *shift) noteBetween(state *fsm.State) {
	for j := range state.RunningJobs() {
		switch j.Kind {
		case fsm.JobReceive:
			s.known.noteReceiving(j.ID, s.memory.Receiving(j.ID))
		case fsm.JobRelocate:
			s.known.noteBetween(j.ID, s.memory.Between(j.ID))
		}
	}
	s.known.forgetBetween(func(id fsm.JobID) bool {
		j, ok := state.Job(id)
		return !ok || j.Ended != 0
	})
}

// betweenKept is how many moves between directories are remembered after their end at
// most: for those who wait to be told of them.
const betweenKept = 4096

func (k *knowledge) noteReceiving(id fsm.JobID, r loops.Receiving) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.receives[id]
	if before == r {
		return
	}
	k.receives[id] = r
	before.Bytes, before.Total = r.Bytes, r.Total
	if before != r && k.changed != nil {
		close(k.changed)
		k.changed = nil
	}
}

func (k *knowledge) receiving(id fsm.JobID) loops.Receiving {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.receives[id]
}

// news is closed when something else is known of a receive than how many bytes it has.
func (k *knowledge) news() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changed == nil {
		k.changed = make(chan struct{})
	}
	return k.changed
}

func (k *knowledge) noteBetween(id fsm.JobID, b loops.Between) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.between[id] = b
}

// relocating gives between whom a relocation goes, as far as this leader knows.
func (k *knowledge) relocating(id fsm.JobID) loops.Between {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.between[id]
}

// forgetBetween drops what is known of moves that have ended.
func (k *knowledge) forgetBetween(ended func(fsm.JobID) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.receives)+len(k.between) < betweenKept {
		return
	}
	for id := range k.receives {
		if ended(id) {
			delete(k.receives, id)
		}
	}
	for id := range k.between {
		if ended(id) {
			delete(k.between, id)
		}
	}
}
