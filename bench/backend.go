package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

// answer is what the backend gives to every request: 120 bytes of JSON.
const answer = `{"columns":["id","body"],"rows":[[1,"a row of a tenant, long enough to be like one that an application reads often"]]}` + "\n  "

// runBackend serves the same small answer to everything, and a body of any
// size under /size/<bytes>.
func runBackend(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("backend", flag.ContinueOnError)
	addr := fs.String("listen", "127.0.0.1:0", "address")
	if err := fs.Parse(args); err != nil {
		return err
	}
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	block := make([]byte, 256<<10)
	s := &fasthttp.Server{
		StreamRequestBody:    true,
		NoDefaultContentType: true,
		Handler: func(c *fasthttp.RequestCtx) {
			if n := c.QueryArgs().GetUintOrZero("size"); n > 0 {
				c.SetBodyStream(&zeros{left: n, block: block}, n)
				return
			}
			if n := c.QueryArgs().GetUintOrZero("events"); n > 0 {
				c.SetContentType("text/event-stream")
				c.Response.Header.Set("X-Accel-Buffering", "no") // for nginx
				c.SetBodyStreamWriter(func(w *bufio.Writer) { sendEvents(w, n) })
				return
			}
			if c.Request.Header.ContentLength() > len(block) {
				drain(c)
			}
			c.SetContentType("application/json")
			c.SetBodyString(answer)
		},
	}
	go func() { <-ctx.Done(); _ = s.Shutdown() }()
	return s.Serve(l)
}

// sendEvents sends n events, each with the time at which it was sent.
func sendEvents(w *bufio.Writer, n int) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range n {
		<-tick.C
		fmt.Fprintf(w, "data: %d\n\n", time.Now().UnixNano())
		if w.Flush() != nil {
			return
		}
	}
}

func drain(c *fasthttp.RequestCtx) {
	r := c.RequestBodyStream()
	if r == nil {
		return
	}
	buf := make([]byte, 256<<10)
	for {
		if _, err := r.Read(buf); err != nil {
			return
		}
	}
}
