package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"domicile/internal/wait"
	"domicile/proto"
)

// handedRegions are those of the deployment that have a group of their own, and are handed
// over to the global one and back.
var handedRegions = []string{"tr", "us"}

// handOver gives a region to the other group than the one that had it last, as far as the
// mover knows.
func (m *regionMover) handOver(region string) {
	how := proto.HandOverReturn
	if m.given[region] {
		how = proto.HandOverAdopt
		m.note("record", m.do(http.MethodPut, m.proxy()+"/_shard/regions/"+region, m.routers(region)))
	}
	a := m.do(http.MethodPost, m.proxy()+"/_shard/regions/"+region+"/"+how, "")
	if m.note(how, a); a.Status == http.StatusAccepted || a.Status == http.StatusConflict || a.Status == http.StatusNotFound {
		m.given[region] = !m.given[region]
	}
}

// routers is the body that records a region with its own proxies.
func (m *regionMover) routers(region string) string {
	var routers []string
	for _, p := range m.r.Own[region].Proxies {
		routers = append(routers, p.Via)
	}
	body, _ := json.Marshal(map[string][]string{"routers": routers})
	return string(body)
}

// bringBack waits until no hand-over of a region is under way, and has it keep its own
// directory, as each round begins.
func (m *regionMover) bringBack(region string) {
	m.t.Helper()
	global, own := m.r.Global, m.r.Own[region]
	wait.For(m.t, "region "+region+" keeps its own directory", func() error {
		var at proto.Region
		a := m.do(http.MethodGet, global.AnyControl().URL+"/_shard/regions/"+region+"?consistent=1", "")
		switch nodes := m.do(http.MethodGet, own.AnyControl().URL+"/_shard/nodes?consistent=1", ""); {
		case a.Status == http.StatusNotFound:
			return fmt.Errorf("%s", m.do(http.MethodPut, global.AnyControl().URL+"/_shard/regions/"+region, m.routers(region)))
		case a.Status != http.StatusOK || json.Unmarshal(a.Body, &at) != nil || at.HandOver != nil || nodes.Status != http.StatusOK:
			return fmt.Errorf("%s, nodes %s", a, nodes)
		case !strings.Contains(string(nodes.Body), own.Nodes[0].ID):
			return fmt.Errorf("%s", m.do(http.MethodPost, global.AnyControl().URL+"/_shard/regions/"+region+"/adopt", ""))
		}
		a = m.do(http.MethodGet, own.AnyControl().URL+"/_shard/regions/"+region+"/return", "")
		if last := new(proto.RegionHandOver); a.Status == http.StatusOK && (json.Unmarshal(a.Body, last) != nil || last.Outcome == "") {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}
