package proto

import (
	"bytes"
	"encoding/json"
	"errors"
)

// UnmarshalJSON reads a unit's name, or {"unit","id"?,"epoch"?} and nothing else.
func (u *UnitItem) UnmarshalJSON(text []byte) error {
	*u = UnitItem{}
	if len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, &u.Unit)
	}
	if len(text) == 0 || text[0] != '{' {
		return errors.New(`a unit is its name, or {"unit","id"}`)
	}
	type plain UnitItem // without this method
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode((*plain)(u))
}
