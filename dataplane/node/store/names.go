package store

import "strings"

const maxName = 64 // bytes of a tenant's name

// checkName takes a tenant's name, [a-z0-9_-]{1,64}, or one with a dot and a
// bucket's number (from 1, no leading zero) behind it.
func checkName(name string) error {
	tenant, bucket, isBucket := strings.Cut(name, ".")
	ok := tenant != "" && len(tenant) <= maxName
	for i := 0; ok && i < len(tenant); i++ {
		c := tenant[i]
		ok = 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-'
	}
	if isBucket {
		ok = ok && bucket != "" && len(bucket) <= 10 && bucket[0] != '0'
		for i := 0; ok && i < len(bucket); i++ {
			ok = '0' <= bucket[i] && bucket[i] <= '9'
		}
	}
	if !ok {
		return &UnitError{Unit: strings.ToValidUTF8(name[:min(len(name), 80)], "?"), Op: "check the name", Err: ErrBadName,
			Hint: "a tenant is [a-z0-9_-]{1,64}, a bucket <tenant>.<number>"}
	}
	return nil
}
