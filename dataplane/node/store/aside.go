package store

import (
	"context"
	"time"
)

// AsideFile is a database that was kept when its branch was given up.
type AsideFile struct {
	Unit     string
	Path     string // in the data folder
	Position Position
	At       time.Time
	Bytes    int64
}

// SetAside keeps a copy of what the unit has as a plain SQLite file,
// aside/<unit>@<epoch>-<seq>@<unix ms>.db in the data folder, and gives its
// path and the mark that it has. The unit stays as it is. ErrUnknownUnit,
// ErrNeedsImage, ErrDamaged, ErrDiskFull, ErrIO.
func (s *Store) SetAside(ctx context.Context, unit string) (path string, m Mark, err error) {
	return "", Mark{}, nil
}

// AsideFiles lists the files that SetAside has kept, by unit, oldest first.
func (s *Store) AsideFiles() (map[string][]AsideFile, error) { return nil, nil }
