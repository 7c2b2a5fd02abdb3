package controlplane

import (
	"context"
	"net/url"

	"domicile/controlplane/loops"
	"domicile/proto"
)

// lookAtMove asks the target of a move how far it is.
func (c *nodeCall) lookAtMove(ctx context.Context) loops.Answer {
	target := c.action.Target
	var held []proto.HeldUnit
	path := pathUnits + "?unit=" + url.QueryEscape(string(target.Unit))
	if a, ok := c.ask(ctx, answerTimeout, path, "tell how far a move is", nil, &held); !ok {
		return a
	}
	answer := loops.Answer{Outcome: loops.Done}
	for i := range held {
		if h := &held[i]; h.Unit == target.Unit && h.ID == target.ID {
			answer.Image = imageOf(h)
		}
	}
	return answer
}

func imageOf(h *proto.HeldUnit) *loops.Image {
	i := &loops.Image{Held: uint64(max(h.Bytes, 0)), Problem: h.Problem, Follows: h.Follows}
	if h.Image != nil {
		i.Bytes, i.Total = uint64(max(h.Image.Bytes, 0)), uint64(max(h.Image.Total, 0))
	}
	if i.Problem == "" {
		i.Problem = h.Error
	}
	return i
}
