package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"domicile/controlplane/loops"
	"domicile/fsm"
	"domicile/proto"
)

const pathLease = "/_admin/lease"

// nodeCodeTakesNoLease is a node's code for: it writes without a lease.
const nodeCodeTakesNoLease fsm.Code = "takes_no_lease"

// read reads a node for a recovery: how long its lease runs, and then what it holds.
// Both calls name the holder, so that the node takes nothing of an older one from
// the first on; the lease is asked first, so that where it is over nothing was
// written behind what is read.
func (c *nodeCall) read(ctx context.Context) loops.Answer {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	header := http.Header{}
	header.Set(proto.HeaderHolder, c.holder.String())
	read := &loops.NodeRead{}
	reply, err := c.nodes.call(ctx, http.MethodGet, c.node, pathLease, header, nil)
	var lease proto.LeaseState
	switch code, _ := errorOf(reply); {
	case err == nil && reply.status == http.StatusOK && json.Unmarshal(reply.body, &lease) == nil:
		read.Leased = true
		if lease.LeftMS != nil {
			read.Left = fsm.Millis(max(*lease.LeftMS, 0))
		}
	case err == nil && reply.status == http.StatusConflict && code == nodeCodeTakesNoLease:
	default:
		return c.negative(reply, err, "tell how long its lease runs")
	}
	reply, err = c.nodes.call(ctx, http.MethodGet, c.node, pathUnits, header, nil)
	var held []proto.HeldUnit
	if err != nil || reply.status != http.StatusOK {
		return c.negative(reply, err, "tell what it holds")
	}
	if json.Unmarshal(reply.body, &held) != nil {
		return loops.Answer{Outcome: loops.Refused, Refusal: &fsm.Refusal{Code: fsm.CodeNodeRefused, Fields: c.fields(),
			Text: fmt.Sprintf("node %s was asked what it holds and answers what no node answers", c.node.name)}}
	}
	for i := range held {
		read.Units = append(read.Units, found(&held[i]))
	}
	return loops.Answer{Outcome: loops.Done, Read: read}
}

// States of a unit at a node (spec §2.5).
const (
	unitActive    = "active"
	unitPinned    = "pinned"
	unitSending   = "sending"
	unitSent      = "sent"
	unitFollowing = "following"
	unitReceiving = "receiving" // follows, as a move goes there
)

// found reads a line of a node's units for a recovery. A copy that holds nothing yet
// has no epoch; a read replica is in another region, and never promoted (C8).
func found(h *proto.HeldUnit) loops.Found {
	f := loops.Found{UnitRef: fsm.UnitRef{Unit: h.Unit, ID: h.ID}, Problem: h.Error}
	var ok bool
	f.Epoch, f.Seq, ok = parsePosition(h.Position)
	f.Follows = h.State == unitFollowing || h.State == unitReceiving
	f.Written = h.State == unitActive || h.State == unitPinned || h.State == unitSending
	f.Usable = ok && f.Epoch > 0 && h.Kind != proto.CopyReader && (f.Written || f.Follows || h.State == unitSent)
	if f.Follows {
		f.From = h.From
	}
	if h.Destination != nil && !f.Written {
		f.To = h.Destination.Addr
	}
	return f
}
