// Package tlsconf makes the TLS configurations of Domicile's processes from
// certificate files, and replaces them while connections are open (O5).
//
// Three files describe a process: its certificate and key, and the CA that
// signs the certificates of the other parts. A port that serves clients asks
// them for no certificate; a port that serves the deployment's other parts asks
// for one that the CA signed, and so do the connections to them: that is mutual
// TLS between parts.
//
// The package starts no goroutine. Whoever handles SIGHUP calls Reload.
package tlsconf
