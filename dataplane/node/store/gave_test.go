package store

import (
	"fmt"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestM9TheNewestOfWhatWasGivenAwayIsKept: as many as are kept, one of them given twice.
func TestM9TheNewestOfWhatWasGivenAwayIsKept(t *testing.T) {
	s := open(t, Config{})
	err := s.db.Update(func(tx *bolt.Tx) error {
		for i := range maxGave + 10 {
			r := &stored{Record: Record{Name: fmt.Sprint("u", i), Destination: "n2 http://h:1"}}
			if err := keepGave(tx, r); err != nil {
				return err
			}
			if i == 20 {
				if err := keepGave(tx, &stored{Record: Record{Name: "u3", From: "http://h:2"}}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for unit, want := range map[string]string{"u0": "", "u3": "http://h:2", "u10": "", "u11": "n2 http://h:1", fmt.Sprint("u", maxGave+9): "n2 http://h:1"} {
		if to, ok := s.Gave(unit); to != want || ok != (want != "") {
			t.Errorf("%s: %q %v", unit, to, ok)
		}
	}
	for _, bucket := range [][]byte{gaveBucket, gaveOrderBucket} {
		s.db.View(func(tx *bolt.Tx) error {
			if n := tx.Bucket(bucket).Stats().KeyN; n > maxGave {
				t.Errorf("%s holds %d", bucket, n)
			}
			return nil
		})
	}
}
