// Command etcdput puts small values into etcd from a number of clients for a
// while and prints the rate and latencies as JSON. It is a module of its own,
// so that etcd's client stays out of Domicile's dependencies.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func main() {
	endpoints := flag.String("endpoints", "", "comma-separated")
	clients := flag.Int("clients", 1, "clients at once")
	length := flag.Duration("time", 3*time.Second, "how long")
	flag.Parse()
	if err := run(strings.Split(*endpoints, ","), *clients, *length); err != nil {
		fmt.Fprintln(os.Stderr, "etcdput:", err)
		os.Exit(1)
	}
}

func run(endpoints []string, clients int, length time.Duration) error {
	ctx := context.Background()
	conns := make([]*clientv3.Client, clients)
	for i := range conns {
		// One connection a client, as a service's instances would have.
		c, err := clientv3.New(clientv3.Config{Endpoints: endpoints[:1], DialTimeout: 5 * time.Second})
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Put(ctx, "warm", "up"); err != nil {
			return err
		}
		conns[i] = c
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []time.Duration
	var firstErr error
	end := time.Now().Add(length)
	for i, c := range conns {
		wg.Go(func() {
			var mine []time.Duration
			for n := 0; time.Now().Before(end); n++ {
				t := time.Now()
				if _, err := c.Put(ctx, fmt.Sprintf("region-%d-%d", i, n%100), `{"routers":["http://10.0.0.1:8090"]}`); err != nil {
					mu.Lock()
					firstErr = err
					mu.Unlock()
					return
				}
				mine = append(mine, time.Since(t))
			}
			mu.Lock()
			all = append(all, mine...)
			mu.Unlock()
		})
	}
	wg.Wait()
	if firstErr != nil {
		return firstErr
	}
	slices.Sort(all)
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"per_second": float64(len(all)) / length.Seconds(),
		"p50_us":     float64(all[len(all)/2].Microseconds()),
		"p99_us":     float64(all[len(all)*99/100].Microseconds()),
		"count":      float64(len(all)),
	})
}
