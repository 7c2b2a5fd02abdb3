// Package faultpoint has a process fail, stop or end at a labelled point of its
// code, for tests: at a file call, before a command is proposed, after a node
// has answered. The points are in the program where it is built with the tag
// faultpoint; without the tag At is empty, and a call of it compiles to nothing.
//
// What is to happen is said in a file, one rule a line (Rule.String), whose name
// the process takes from DOMICILE_FAULTPOINTS and which it reads anew at each
// point that it comes to: a rule takes effect when it is written, and ends when
// it is taken out. Each time that a rule takes effect a line is added to the file
// of the same name and ".hits", before anything happens, so that a rule is spent
// over restarts too, and a test can tell that its fault was one.
//
// There are no goroutines.
package faultpoint
