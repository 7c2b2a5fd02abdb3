package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"

	"github.com/tidwall/btree"
)

// Intake is what a directory knows of a region that another one gives it, kept by that
// one's authority: of the last job of each. It is immutable.
type Intake struct {
	Giver
	Region  RegionName
	Try     uint64
	Part    uint64 // the last that was taken of Try
	Digest  uint64 // of what is staged
	Longest Millis
	Began   Millis
	// Arrived is the entry that took the region over, 0 before; Nodes are then those that
	// came with it.
	Arrived Revision
	Nodes   []NodeRef
	// Over says that the giver's job has ended, or was given up: nothing of it is taken any
	// more.
	Over bool
	// Given says that the region had been given already when it was told of: a recovery has
	// lost that. It arrives while the directory is being recovered, and in no other time.
	Given bool
}

type (
	intakeTree = btree.Map[string, *Intake]
	regionTree = btree.Map[RegionName, int]
)

// staged is what is between two directories: what the open intake was told of, or what
// the JobGive that runs has given, until it ends.
type staged struct {
	nodes   btree.Map[NodeName, *Node]
	tenants btree.Map[TenantName, *tenancy]
}

func (s *staged) copied() staged { return staged{*s.nodes.Copy(), *s.tenants.Copy()} }

// Giving is the job that is giving a region away, or nil.
func (s *State) Giving() *Job { return s.giving }

// Intake gives what is known of a region that an authority gives to this directory.
func (s *State) Intake(authority string) (*Intake, bool) { return s.intakes.Get(authority) }

// Intakes yields what is known of regions that were given to this directory, by the
// authority that gave them.
func (s *State) Intakes() iter.Seq[*Intake] { return values(&s.intakes) }

// OpenIntake is the one that has not come to its end, or nil.
func (s *State) OpenIntake() *Intake {
	for i := range s.Intakes() {
		if !i.Over {
			return i
		}
	}
	return nil
}

// StagedNodes and StagedTenants yield what is between this directory and another one, by
// name: what the open intake was told of, or what Giving has given.
func (s *State) StagedNodes() iter.Seq[*Node] { return values(&s.staged.nodes) }

// StagedTenants is told of at StagedNodes.
func (s *State) StagedTenants() iter.Seq2[*Tenant, *Placed] {
	return func(yield func(*Tenant, *Placed) bool) {
		s.staged.tenants.Scan(func(_ TenantName, t *tenancy) bool { return yield(t.tenant, t.unit) })
	}
}

// keepsOwn reports whether a region's nodes and units are in a directory of its own. One
// that is recorded is still this directory's as long as it has nodes here: until it has
// been handed over.
func (s *State) keepsOwn(r RegionName) bool {
	if s.regions.Len() == 0 {
		return false
	}
	_, recorded := s.regions.Get(r)
	if s.level < levelRegions {
		return recorded
	}
	n, _ := s.nodesIn.Get(r)
	return recorded && n == 0
}

// KeepsOwn reports whether a region keeps its own directory.
func (s *State) KeepsOwn(r RegionName) bool { return s.keepsOwn(r) }

// countNode notes that a node is in a region, or is there no more.
func (s *State) countNode(r RegionName, by int) {
	n, _ := s.nodesIn.Get(r)
	if n+by == 0 {
		s.nodesIn.Delete(r)
		return
	}
	s.nodesIn.Set(r, n+by)
}

// closed reports whether nothing may be begun in a region: it is being handed over.
func (s *State) closed(r RegionName) bool {
	if j := s.giving; j != nil && j.Step == StepCopy && j.Home == r {
		return true
	}
	if s.intakes.Len() == 0 {
		return false
	}
	i := s.OpenIntake()
	return i != nil && i.Arrived == 0 && i.Region == r
}

// Given yields the nodes of a region, and the tenants that live on them, as a JobGive
// hands them over.
func (s *State) Given(r RegionName) (nodes []*Node, tenants iter.Seq2[*Tenant, *Placed]) {
	for n := range s.Nodes() {
		if n.Region == r {
			nodes = append(nodes, n)
		}
	}
	return nodes, func(yield func(*Tenant, *Placed) bool) {
		for _, n := range nodes {
			for p := range s.HeldBy(n.Name) {
				if t, ok := s.tenants.Get(TenantName(p.Unit)); ok && p.Node == n.Name && !yield(t.tenant, p) {
					return
				}
			}
		}
	}
}

// Digest is a sum over records that both sides of a hand-over have alike: each record's
// own is added, in any order. What the sides count for themselves is not in it.
func (s *State) Digest(r RegionName) (sum uint64) {
	nodes, tenants := s.Given(r)
	for _, n := range nodes {
		sum += NodeDigest(n)
	}
	for t, p := range tenants {
		sum += TenantDigest(t, p)
	}
	return sum
}

// stagedDigest is that of what is between two directories.
func (s *State) stagedDigest() (sum uint64) {
	for n := range s.StagedNodes() {
		sum += NodeDigest(n)
	}
	for t, p := range s.StagedTenants() {
		sum += TenantDigest(t, p)
	}
	return sum
}

// NodeDigest is a node's part of Digest.
func NodeDigest(n *Node) uint64 {
	var b digest
	b.text(string(n.Name), n.Addr, n.Token, string(n.Region), string(n.Zone), string(n.Standby))
	b.number(uint64(n.Weight), uint64(n.Lease), uint64(number(n.Lost)), uint64(number(n.Drain != nil)))
	if d := n.Drain; d != nil {
		b.number(uint64(d.Since), uint64(d.Units), uint64(number(d.Forced)))
	}
	return b.sum()
}

// TenantDigest is that of a tenant and its unit.
func TenantDigest(t *Tenant, p *Placed) uint64 {
	var b digest
	b.text(string(t.Name), string(p.Node))
	b.number(uint64(t.Created), uint64(number(t.Pinned)), uint64(number(t.Quota != nil)), uint64(p.ID), p.Epoch, uint64(len(p.Copies)))
	if q := t.Quota; q != nil {
		b.number(q.Bytes, uint64(q.RPS), uint64(q.InFlight))
	}
	for _, cp := range p.Copies {
		b.text(string(cp.Node))
		b.number(uint64(cp.State))
	}
	return b.sum()
}

// digest gathers a record's fields; texts carry their length, so that no two records
// give the same bytes.
type digest []byte

func (d *digest) text(texts ...string) {
	for _, t := range texts {
		*d = append(binary.AppendUvarint(*d, uint64(len(t))), t...)
	}
}

func (d *digest) number(numbers ...uint64) {
	for _, n := range numbers {
		*d = binary.AppendUvarint(*d, n)
	}
}

func (d *digest) sum() uint64 {
	h := sha256.Sum256(*d)
	return binary.LittleEndian.Uint64(h[:])
}

// nextEpoch is that of a unit that is flipped now. In a directory whose revisions are below
// those of the one that the unit came from it is of the next generation: epochs of a unit
// only grow (architecture §3.7.5).
func (c *change) nextEpoch(p *Placed) uint64 { return c.epochAbove(p.Epoch) }

// epochAbove is nextEpoch of a unit whose newest branch has an epoch.
func (c *change) epochAbove(epoch uint64) uint64 {
	if e := epochOf(generation(epoch), c.at); e > epoch {
		return e
	}
	return epochOf(generation(epoch)+1, c.at)
}
