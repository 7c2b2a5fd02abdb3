package lease

import "domicile/fsm"

func addNode(b *fsm.Builder, n *fsm.Node, list fsm.Revision) error { return b.AddNode(n, list) }
