package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

func init() { runtime.LockOSThread() } // processes end with the thread that started them

func main() { os.Exit(demo()) }

func demo() (code int) {
	deploy := flag.String("deploy", "deploy", "the folder of the Compose file")
	program := flag.String("domicile", "bin/domicile", "the program")
	flag.Parse()
	if err := mayRun(); err != nil {
		fmt.Fprintln(os.Stderr, "demo-regions:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	d, err := open(*deploy, *program)
	defer func() {
		if err := d.close(); err != nil {
			fmt.Fprintln(os.Stderr, "demo-regions: something is left behind:", err)
			code = 1
		}
	}()
	if err == nil {
		err = (&story{deployment: d, ctx: ctx}).tell()
	}
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "demo-regions: interrupted")
		return 1
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo-regions:", err)
		return 1
	}
	return 0
}

// mayRun says what is missing to make namespaces.
func mayRun() error {
	if runtime.GOOS != "linux" {
		return errors.New("network namespaces are Linux's; deploy/compose.yaml runs the same deployment in containers")
	}
	if os.Geteuid() != 0 {
		return errors.New("making network namespaces takes root: run it as sudo make demo-regions, or in a container that may")
	}
	for program, pack := range map[string]string{"ip": "iproute2", "sysctl": "procps"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("there is no program %s here: install %s", program, pack)
		}
	}
	return nil
}
