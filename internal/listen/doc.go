// Package listen opens the listening sockets of Domicile's processes, and
// refuses those that would leave a server open to a network (O5). It starts no
// goroutine.
package listen
