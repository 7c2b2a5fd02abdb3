package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"domicile/client"
)

// adminCmd is the operator's CLI: each command is one call of package client.
type adminCmd struct {
	Server    []string `group:"Connection and output" default:"http://127.0.0.1:8070" sep:"," help:"Control servers or proxies to ask, separated by commas; the one that answers is used."`
	Token     string   `group:"Connection and output" help:"Token of the admin API."`
	TokenFile string   `group:"Connection and output" placeholder:"FILE" help:"File that holds the token."`
	Output    string   `group:"Connection and output" short:"o" enum:"table,json" default:"table" help:"How to print: ${enum}."`
	TLSCA     string   `group:"Connection and output" name:"tls-ca" placeholder:"FILE" help:"PEM certificates that the servers must be signed by."`
	TLSCert   string   `group:"Connection and output" name:"tls-cert" placeholder:"FILE" help:"PEM certificate to show to servers that ask for one."`
	TLSKey    string   `group:"Connection and output" name:"tls-key" placeholder:"FILE" help:"PEM key of --tls-cert."`

	Nodes     adminNodes     `cmd:"" help:"Nodes: record, list, change, fail over, drain, delete."`
	Tenants   adminTenants   `cmd:"" help:"Tenants: create, list, show, explain, move, pin, delete."`
	Moves     adminMoves     `cmd:"" help:"Moves of tenants: list, show, watch, cancel."`
	Rebalance adminRebalance `cmd:"" help:"Move tenants so that each node holds its share."`
	Replicas  adminReplicas  `cmd:"" help:"Copies of tenants: list, repair."`
	Regions   adminRegions   `cmd:"" help:"Regions that keep a directory of their own."`
	Settings  adminSettings  `cmd:"" help:"The group's settings: copies, leases, graces."`
	Events    adminEvents    `cmd:"" help:"Watch nodes, tenants and leaders change, a line per event, until Ctrl-C."`
	Backup    adminBackup    `cmd:"" help:"Write the directory to a file."`
	Restore   adminRestore   `cmd:"" help:"Make a backup the directory of a new group."`
	Recovery  adminRecovery  `cmd:"" help:"The directory's recovery, from a backup or a lost majority: show, write a node off, adopt a tenant."`
	Group     adminGroup     `cmd:"" help:"The servers of the directory's group: show, add, remove, hand over."`
}

// admin is what a command of the operator's CLI runs with.
type admin struct {
	*client.Client
	ctx  context.Context
	out  *env
	json bool

	follow string // the command that shows what goes on without this one
}

// open makes the client once the flags are known.
func (c *adminCmd) open(ctx context.Context, e *env) (*admin, error) {
	token, err := secret("token", c.Token, c.TokenFile)
	if err != nil {
		return nil, err
	}
	transport, err := partsTransport(c.TLSCert, c.TLSKey, c.TLSCA)
	if err != nil {
		return nil, err
	}
	servers, err := baseURLs("server", c.Server)
	if err != nil {
		return nil, err
	}
	cl, err := client.New(client.Config{Servers: servers, Token: token, Transport: transport})
	if err != nil {
		return nil, usagef("%v", err)
	}
	return &admin{Client: cl, ctx: ctx, out: e, json: c.Output == "json"}, nil
}

// print gives v as JSON, or the rows as a table under their head.
func (a *admin) print(v any, head []string, rows [][]string) error {
	if a.json {
		enc := json.NewEncoder(a.out.stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	w := tabwriter.NewWriter(a.out.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(head, "\t"))
	for _, r := range rows {
		for i, cell := range r {
			if cell == "" {
				r[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// say prints one line for people, and nothing for programs.
func (a *admin) say(format string, args ...any) error {
	if a.json {
		return nil
	}
	_, err := fmt.Fprintf(a.out.stdout, format+"\n", args...)
	return err
}

// gone tells of something that was deleted.
func (a *admin) gone(kind, name, format string, args ...any) error {
	if a.json {
		return a.print(map[string]any{kind: name, "deleted": true}, nil, nil)
	}
	return a.say(format, args...)
}
