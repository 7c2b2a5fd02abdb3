package proto

import (
	"encoding/json"
	"testing"
)

func TestUnitItemIsANameOrAnObject(t *testing.T) {
	for text, want := range map[string]UnitItem{
		`"acme"`:                 {Unit: "acme"},
		`{"unit":"acme","id":7}`: {Unit: "acme", ID: 7},
		`{"unit":"acme.3"}`:      {Unit: "acme.3"},

		`{"unit":"acme","id":7,"epoch":40}`: {Unit: "acme", ID: 7, Epoch: 40},
	} {
		got := UnitItem{ID: 99}
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{`7`, `null`, `["acme"]`, `{"unit":"acme","is":7}`, `{"unit":7}`, `{"unit":"a","id":-1}`} {
		var got []UnitItem
		if err := json.Unmarshal([]byte(`[`+text+`]`), &got); err == nil {
			t.Errorf("%s is taken as %+v", text, got)
		}
	}
	text, err := json.Marshal(UnitItem{Unit: "acme", ID: 7})
	if err != nil || string(text) != `{"unit":"acme","id":7}` {
		t.Errorf("written as %s, %v", text, err)
	}
}
