package controlplane

import (
	"sync"

	"domicile/fsm"
	"domicile/proto"
)

// regionsTold keeps the last answers of regions about jobs that wait for them, for the
// requests that wait for the jobs: what the directory does not have of another one's.
type regionsTold struct {
	mu   sync.Mutex
	of   map[fsm.JobID]regionTold
	jobs []fsm.JobID // as they came
}

// regionTold is what a region told of its task of a job.
type regionTold struct {
	region fsm.RegionName
	task   *proto.Task // without any token
	at     proto.Also  // the region's directory, and how new it was
}

// toldKept bounds the answers that are kept; one that is not there any more is asked for.
const toldKept = 4096

func (k *regionsTold) note(region fsm.RegionName, task *proto.Task, at proto.Also) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.of[task.Job]; !known {
		if k.jobs = append(k.jobs, task.Job); len(k.jobs) > toldKept {
			delete(k.of, k.jobs[0])
			k.jobs = k.jobs[1:]
		}
	}
	if k.of == nil {
		k.of = make(map[fsm.JobID]regionTold)
	}
	k.of[task.Job] = regionTold{region: region, task: task.Shown(), at: at}
}

func (k *regionsTold) get(job fsm.JobID) (regionTold, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	told, ok := k.of[job]
	return told, ok
}
