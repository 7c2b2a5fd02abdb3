package proxy

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// moving is two nodes between which tenants move: frozen at the one, released, placed
// at the other, which takes them only a little later.
type moving struct {
	mu       sync.Mutex
	serves   map[string]string
	frozen   map[string]bool
	executed map[string]int // by the request's body
}

func (m *moving) node(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		tenant := strings.Split(r.URL.Path, "/")[2]
		m.mu.Lock()
		here, frozen := m.serves[tenant] == name, m.frozen[tenant]
		if here && !frozen && err == nil {
			m.executed[string(body)]++
		}
		m.mu.Unlock()
		switch {
		case !here:
			misdirected(w, r)
		case frozen:
			refusing("transfer_in_progress")(w, r)
		default:
			io.WriteString(w, name+tenant)
		}
	}
}

func (m *moving) set(tenant, serves string, frozen bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serves[tenant], m.frozen[tenant] = serves, frozen
}

// TestM3NoRequestFailsWhileTenantsMove, and none is executed twice.
func TestM3NoRequestFailsWhileTenantsMove(t *testing.T) {
	const tenants = 5
	control := newControlFake(t)
	m := &moving{serves: map[string]string{}, frozen: map[string]bool{}, executed: map[string]int{}}
	a, b := newNode(t, "a", m.node("a")), newNode(t, "b", m.node("b"))
	p := holding(t, control, long)
	rev := control.change(a.info(), b.info())
	for i := range tenants {
		m.set(fmt.Sprint("t", i), "a", false)
		rev = control.change(placed(fmt.Sprint("t", i), "a"))
	}
	p.await(rev)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	sent := make([]int, 8)
	for g := range sent {
		clients.Go(func() {
			for ; ; sent[g]++ {
				select {
				case <-stop:
					return
				default:
				}
				tenant := fmt.Sprint("t", sent[g]%tenants)
				got, err := p.do("POST", "/t/"+tenant+"/query", nil, fmt.Sprint(g, " ", sent[g]))
				if err != nil || got.StatusCode != 200 || got.body[1:] != tenant {
					t.Errorf("%s: got %v %q", tenant, err, got.body)
					return
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 60 {
		tenant, from, to := fmt.Sprint("t", i%tenants), "a", "b"
		if i/tenants%2 == 1 {
			from, to = to, from
		}
		m.set(tenant, from, true)
		if r.IntN(2) == 0 { // somebody meets the pause
			eventually(t, func() error {
				if p.holds.open.Load() == 0 {
					return errNotYet
				}
				return nil
			})
		}
		m.set(tenant, "", false)
		rev := control.change(placed(tenant, to))
		if r.IntN(2) == 0 {
			p.await(rev)
		}
		m.set(tenant, to, false)
	}
	close(stop)
	clients.Wait()
	for g, n := range sent {
		for i := range n {
			if got := m.executed[fmt.Sprint(g, " ", i)]; got != 1 {
				t.Errorf("request %d of client %d was executed %d times", i, g, got)
			}
		}
	}
	if p.holds.counts[outcomeAnswered].Load() == 0 {
		t.Error("nothing was held")
	}
	if n := p.holds.counts[outcomeExpired].Load() + p.holds.counts[outcomeFull].Load() + p.holds.counts[outcomeBroken].Load(); n != 0 {
		t.Errorf("%d requests were held in vain", n)
	}
}
