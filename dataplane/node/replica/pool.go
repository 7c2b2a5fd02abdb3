package replica

import (
	"context"
	"sync"
)

// pool runs tasks, in the order in which they came, on a fixed number of
// goroutines: units are many, and each has something to do now and then.
type pool struct {
	mu    sync.Mutex
	some  sync.Cond
	tasks []func(context.Context)
	ended bool
}

func newPool() *pool {
	p := &pool{}
	p.some.L = &p.mu
	return p
}

// put adds a task; after the end of run it is dropped.
func (p *pool) put(task func(context.Context)) {
	p.mu.Lock()
	if !p.ended {
		p.tasks = append(p.tasks, task)
	}
	p.mu.Unlock()
	p.some.Signal()
}

// run works with n goroutines until ctx ends, and returns when the tasks that
// were running have ended. Those that had not begun are dropped.
func (p *pool) run(ctx context.Context, n int) {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		p.ended, p.tasks = true, nil
		p.mu.Unlock()
		p.some.Broadcast()
	})
	defer stop()
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() {
			for task := p.next(); task != nil; task = p.next() {
				task(ctx)
			}
		})
	}
	workers.Wait()
}

func (p *pool) next() func(context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.tasks) == 0 && !p.ended {
		p.some.Wait()
	}
	if p.ended {
		return nil
	}
	task := p.tasks[0]
	p.tasks[0] = nil
	if p.tasks = p.tasks[1:]; len(p.tasks) == 0 {
		p.tasks = nil
	}
	return task
}
