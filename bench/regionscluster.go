package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"
)

// globalID is the name of the global group's server in cuts.
const globalID = "global"

// startGlobal starts the global group that a region's follows, unless another region's does
// already, and gives the flags by which its control servers do.
func (c *copyCluster) startGlobal(ctx context.Context, o copyOptions) (args []string, err error) {
	c.inRegion = fmt.Sprintf(`,"region":%q`, o.region)
	if o.follows != nil {
		c.globalURL, c.globalVia = o.follows.globalURL, o.follows.globalVia
		return []string{"--region", o.region, "--global", c.globalVia}, nil
	}
	listen, reach, err := c.cuts.listener(globalID)
	if err != nil {
		return nil, err
	}
	raft, err := freePort()
	if err != nil {
		return nil, err
	}
	c.global, err = start(ctx, globalID, nil, c.bin, "control", "--id", globalID, "--data", filepath.Join(c.dir, globalID), "--listen", listen,
		"--advertise", "http://"+reach, "--raft-listen", raft, "--bootstrap", "--log-level", "error")
	if err != nil {
		return nil, err
	}
	if o.named {
		c.cuts.started(globalID, c.global.cmd.Process.Pid)
	}
	c.globalURL, c.globalVia = "http://"+listen, "http://"+reach
	if err := awaitReady(ctx, c.globalURL); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, c.global.out)
	}
	return []string{"--region", o.region, "--global", c.globalVia}, nil
}

// recordRegion has the global group know of the region's proxy.
func (c *copyCluster) recordRegion(ctx context.Context, region, router string) error {
	return await(ctx, "the region is not recorded", 20*time.Second, func() error { // it has heard of the global directory by then
		_, err := c.ask(ctx, http.MethodPut, c.globalURL+"/_shard/regions/"+region, fmt.Sprintf(`{"routers":[%q]}`, router))
		return err
	})
}

// leaveGlobal cuts a region's group off from the global one for good: what it sends there
// is lost; and stops the global server, which so sends nothing either.
func (c *copyCluster) leaveGlobal() {
	if c.global == nil {
		return
	}
	if c.cuts != nil {
		c.cuts.way("", globalID).Cut()
	}
	_ = c.global.cmd.Process.Kill()
	_ = c.global.cmd.Wait()
}
