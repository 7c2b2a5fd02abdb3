package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"domicile/client"
)

type cli struct {
	Dev     devCmd     `cmd:"" help:"A whole deployment in one process, to try Domicile: one control server, three nodes in two zones, one proxy. Loopback only, no tokens."`
	Control controlCmd `cmd:"" help:"A server of a directory group. Three of them agree on which node holds which tenant."`
	Proxy   proxyCmd   `cmd:"" help:"A stateless proxy: follows the directory and forwards /t/<tenant>/… to the node that holds the tenant."`
	Node    nodeCmd    `cmd:"" help:"A data node: keeps each tenant as a SQLite database of its own."`
	Admin   adminCmd   `cmd:"" help:"The operator's command line: nodes, tenants, regions, the group."`
	Recover recoverCmd `cmd:"" help:"Make one control server the only one of its group, which has lost its majority for good."`
	Version versionCmd `cmd:"" help:"Print the version."`

	ShowVersion kong.VersionFlag `name:"version" help:"Print the version."`
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
	parser := newParser(ctx, &c, e)
	parsed, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(e.stderr, "domicile: %v\nTry `%s --help`.\n", err, commandOf(err))
		return 2
	}
	if err := c.runParsed(ctx, e, parsed); err != nil {
		c.complain(e, err)
		if errors.Is(err, errUsage) {
			return 2
		}
		return 1
	}
	return 0
}

// newParser reads command lines into c.
func newParser(ctx context.Context, c *cli, e *env) *kong.Kong {
	return kong.Must(c,
		kong.Name("domicile"),
		kong.Description("Every tenant's data at home: a directory kept by Raft, stateless proxies, a SQLite database per tenant.\n\nEvery flag of a server, and those by which admin reaches one, can be given as DOMICILE_<FLAG> in the environment; every secret also as --<flag>-file."),
		kong.PostBuild(envars),
		kong.Vars{"version": versionLine()},
		kong.Writers(e.stdout, e.stderr),
		kong.Exit(func(n int) { panic(exitRequest(n)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(e),
	)
}

// commandOf gives the command whose help says more of a bad command line.
func commandOf(err error) string {
	name := "domicile"
	var parse *kong.ParseError
	if !errors.As(err, &parse) || parse.Context == nil {
		return name
	}
	for _, p := range parse.Context.Path {
		if p.Command != nil {
			name += " " + p.Command.Name
		}
	}
	return name
}

// complain says what went wrong: to people, or with -o json to a program.
func (c *cli) complain(e *env, err error) {
	var answer *client.Error
	var unreached *url.Error
	switch told := errors.As(err, &answer); {
	case !told && errors.As(err, &unreached):
		fmt.Fprintf(e.stderr, "domicile: no server answers: %v\nIs one running there? --server (DOMICILE_SERVER) says where servers or proxies are.\n", err)
		return
	case !told || c.Admin.Output != "json":
		fmt.Fprintf(e.stderr, "domicile: %v\n", err)
		return
	}
	enc := json.NewEncoder(e.stderr)
	enc.SetEscapeHTML(false)
	said := map[string]any{"error": answer.Text, "status": answer.Status, "request_id": answer.RequestID}
	if answer.Code != "" { // an answer about many tenants has none
		said["code"] = answer.Code
	}
	_ = enc.Encode(said)
}

// envars gives every flag of the servers, and the ones by which admin reaches
// them, a variable of the environment. The flags of a single admin command have
// none: a DOMICILE_REGION meant for a proxy would silently filter a list.
func envars(k *kong.Kong) error {
	for _, command := range k.Model.Children {
		for _, f := range command.Flags {
			if f.Name == "help" {
				continue
			}
			name := "DOMICILE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
			f.Envs = append(f.Envs, name)
			f.Value.Tag.Envs = append(f.Value.Tag.Envs, name)
		}
	}
	return nil
}

func (c *cli) runParsed(ctx context.Context, e *env, parsed *kong.Context) error {
	if !strings.HasPrefix(parsed.Command(), "admin ") {
		return parsed.Run()
	}
	a, err := c.Admin.open(ctx, e)
	if err != nil {
		return err
	}
	err = parsed.Run(a)
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case a.follow != "":
		return fmt.Errorf("interrupted; what has begun goes on, see: %s", a.follow)
	}
	return errors.New("interrupted: whether it was done is not known")
}
