package store

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// dbHeaderSize is the length of a SQLite database's header
// (sqlite.org/fileformat2.html#the_database_header).
const dbHeaderSize = 100

type dbHeader struct {
	pageSize int
	pages    uint32 // in the file, 0 where an old writer left it out
	wal      bool   // in WAL mode
}

func parseDBHeader(b []byte) (dbHeader, error) {
	if len(b) < dbHeaderSize || string(b[:16]) != "SQLite format 3\x00" {
		return dbHeader{}, errors.New("not a SQLite database file")
	}
	h := dbHeader{pageSize: int(binary.BigEndian.Uint16(b[16:])), wal: b[18] == 2 && b[19] == 2}
	if h.pageSize == 1 {
		h.pageSize = 65536
	}
	if !validPageSize(h.pageSize) {
		return dbHeader{}, fmt.Errorf("bad page size %d in the database's header", h.pageSize)
	}
	// The count is valid only where the file was last written by a version that keeps it.
	if binary.BigEndian.Uint32(b[24:]) == binary.BigEndian.Uint32(b[92:]) {
		h.pages = binary.BigEndian.Uint32(b[28:])
	}
	return h, nil
}
