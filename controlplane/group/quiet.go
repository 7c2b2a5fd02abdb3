package group

import (
	"slices"

	"github.com/hashicorp/go-hclog"
)

// quietLogger is the logger given to the Raft library. It tells at info and as
// warnings what every election brings, and as errors, many times a second, that
// a server is away; the group itself tells when that begins and ends.
type quietLogger struct{ hclog.Logger }

// repeated are the library's errors about a server that is away.
var repeated = []string{
	"failed to heartbeat to",
	"failed to appendEntries to",
	"failed to make requestVote RPC",
	"failed to pipeline appendEntries",
	"failed to start pipeline replication to",
	"failed to send snapshot to",
	"failed to decode incoming command",
	"failed to flush response",
	"failed to accept connection",
	"peer has newer term, stopping replication",
}

func quiet(l hclog.Logger, name string) hclog.Logger { return quietLogger{l.Named(name)} }

func (l quietLogger) Info(msg string, args ...any) { l.Logger.Debug(msg, args...) }
func (l quietLogger) Warn(msg string, args ...any) { l.Logger.Debug(msg, args...) }
func (l quietLogger) IsInfo() bool                 { return l.Logger.IsDebug() }
func (l quietLogger) IsWarn() bool                 { return l.Logger.IsDebug() }

func (l quietLogger) Error(msg string, args ...any) {
	if slices.Contains(repeated, msg) {
		l.Logger.Debug(msg, args...)
		return
	}
	l.Logger.Error(msg, args...)
}

func (l quietLogger) With(args ...any) hclog.Logger    { return quietLogger{l.Logger.With(args...)} }
func (l quietLogger) Named(name string) hclog.Logger   { return quietLogger{l.Logger.Named(name)} }
func (l quietLogger) ResetNamed(n string) hclog.Logger { return quietLogger{l.Logger.ResetNamed(n)} }
