package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"domicile/proto"
)

// Events watches what happens, from now on, until ctx ends or the stream does:
// the last pair then carries why. It asks the server that answered last and
// does not go over to another by itself, as what happened meanwhile would be
// missed in silence.
func (c *Client) Events(ctx context.Context) iter.Seq2[proto.Event, error] {
	return func(yield func(proto.Event, error) bool) {
		server := c.servers[int(c.preferred.Load())%len(c.servers)]
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.String()+"/_shard/events", nil)
		if err != nil {
			yield(proto.Event{}, fmt.Errorf("client: %w", err))
			return
		}
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			yield(proto.Event{}, fmt.Errorf("ask %s: %w", server.Host, err))
			return
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
			yield(proto.Event{}, negative(resp, body))
			return
		}
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			var e proto.Event
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				yield(e, fmt.Errorf("event of %s: %w", server.Host, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		err = lines.Err()
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		yield(proto.Event{}, fmt.Errorf("the events of %s ended: %w", server.Host, err))
	}
}
