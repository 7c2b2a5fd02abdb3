package controlplane

import (
	"sync"

	"domicile/fsm"
	"domicile/proto"
)

// regionsTold keeps the last answers of regions about jobs that wait for them, for the
// requests that wait for the jobs: what the directory does not have of another one's.
type regionsTold struct {
	mu    sync.Mutex
	of    map[regionsPart]regionTold
	parts []regionsPart // as they came
}

// regionsPart is a region's part of a job: a job may have one in two.
type regionsPart struct {
	job    fsm.JobID
	region fsm.RegionName
}

// regionTold is what a region told of its task of a job.
type regionTold struct {
	task *proto.Task // without any token
	at   proto.Also  // the region's directory, and how new it was
}

// toldKept bounds the answers that are kept; one that is not there any more is asked for.
const toldKept = 4096

func (k *regionsTold) note(region fsm.RegionName, task *proto.Task, at proto.Also) {
	k.mu.Lock()
	defer k.mu.Unlock()
	part := regionsPart{task.Job, region}
	if _, known := k.of[part]; !known {
		if k.parts = append(k.parts, part); len(k.parts) > toldKept {
			delete(k.of, k.parts[0])
			k.parts = k.parts[1:]
		}
	}
	if k.of == nil {
		k.of = make(map[regionsPart]regionTold)
	}
	k.of[part] = regionTold{task: task.Shown(), at: at}
}

func (k *regionsTold) get(job fsm.JobID, region fsm.RegionName) (regionTold, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	told, ok := k.of[regionsPart{job, region}]
	return told, ok
}
