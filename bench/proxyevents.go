package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const eventsEach = 200

// events has server-sent events come through each system, in turns, and tells
// how long one is under way.
func events(ctx context.Context, all []*contender, path string, rounds int) error {
	delay := map[string]sample{}
	for range rounds {
		for _, s := range all {
			d, err := eventDelay(ctx, fmt.Sprintf("http://%s%s?events=%d", s.addr, path, eventsEach))
			if err != nil {
				return fmt.Errorf("events through %s: %w", s.name, err)
			}
			delay[s.name] = append(delay[s.name], d)
		}
	}
	direct := delay["direct"].median()
	var rows [][]string
	for _, s := range all {
		rows = append(rows, []string{s.name, delay[s.name].String(), short(delay[s.name].median() - direct)})
	}
	fmt.Println("A server-sent event, one every 5 ms (to reach: at most 200 µs added)")
	table([]string{"system", "p50 µs under way", "added µs"}, rows)
	return nil
}

// eventDelay gives the median time from sending an event to reading it.
func eventDelay(ctx context.Context, url string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var took sample
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		sent, err := strconv.ParseInt(data, 10, 64)
		if err != nil {
			return 0, err
		}
		took = append(took, float64(time.Now().UnixNano()-sent)/1000)
	}
	if len(took) != eventsEach {
		return 0, fmt.Errorf("%d events of %d arrived", len(took), eventsEach)
	}
	return took.median(), nil
}
