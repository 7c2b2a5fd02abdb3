package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

type cli struct {
	Dev     devCmd     `cmd:"" help:"A whole deployment in one process, to try Domicile: one control server, three nodes in two zones, one proxy. Loopback only, no tokens."`
	Control controlCmd `cmd:"" help:"A server of a directory group. Three of them per region agree on which node holds which tenant."`
	Proxy   proxyCmd   `cmd:"" help:"A stateless proxy: follows the directory and forwards /t/<tenant>/… to the node that holds the tenant."`
	Node    nodeCmd    `cmd:"" help:"A data node: keeps each tenant as a SQLite database of its own."`
	Admin   adminCmd   `cmd:"" help:"The operator's command line: nodes, tenants, regions, the group."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// env is what a sub-command runs with, so that tests can stand in for a shell.
type env struct {
	stdout, stderr io.Writer
	hangup         <-chan os.Signal // SIGHUP: reload certificates and secrets
}

func main() {
	// Databases, logs and snapshots are nobody else's.
	syscall.Umask(0o077)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	code := run(ctx, os.Args[1:], &env{stdout: os.Stdout, stderr: os.Stderr, hangup: hup})
	stop()
	os.Exit(code)
}

// errUsage marks arguments that make no sense together: exit status 2.
var errUsage = errors.New("bad arguments")

func usagef(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUsage, fmt.Sprintf(format, args...))
}

type exitRequest int

// run executes one command line and answers the exit status.
func run(ctx context.Context, args []string, e *env) (code int) {
	// kong asks to exit after --help; a panic carries that out of Parse.
	defer func() {
		if r := recover(); r != nil {
			exit, ok := r.(exitRequest)
			if !ok {
				panic(r)
			}
			code = int(exit)
		}
	}()
	var c cli
	parser := kong.Must(&c,
		kong.Name("domicile"),
		kong.Description("Every tenant's data at home: a directory kept by Raft, stateless proxies, a SQLite database per tenant.\n\nEvery flag can be given as DOMICILE_<FLAG> in the environment, every secret also as --<flag>-file."),
		kong.DefaultEnvars("DOMICILE"),
		kong.Writers(e.stdout, e.stderr),
		kong.Exit(func(n int) { panic(exitRequest(n)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(e),
	)
	parsed, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(e.stderr, "domicile: %v\nTry `domicile --help`.\n", err)
		return 2
	}
	if err := c.runParsed(ctx, e, parsed); err != nil {
		fmt.Fprintf(e.stderr, "domicile: %v\n", err)
		if errors.Is(err, errUsage) {
			return 2
		}
		return 1
	}
	return 0
}

func (c *cli) runParsed(ctx context.Context, e *env, parsed *kong.Context) error {
	if !strings.HasPrefix(parsed.Command(), "admin ") {
		return parsed.Run()
	}
	a, err := c.Admin.open(ctx, e)
	if err != nil {
		return err
	}
	return parsed.Run(a)
}
