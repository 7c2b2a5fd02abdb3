package proxy

import (
	"context"
	"time"
)

const staleAfter = 5 * time.Second

func (p *Proxy) follow(ctx context.Context) { <-ctx.Done() }
