package httpserve

import (
	"reflect"
	"strings"
)

// fieldNames lists the JSON names of the fields of the struct that v points
// to, embedded ones included.
func fieldNames(v any) map[string]bool {
	names := make(map[string]bool)
	addFieldNames(names, reflect.TypeOf(v).Elem())
	return names
}

func addFieldNames(names map[string]bool, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if f.Anonymous && tag == "" {
			addFieldNames(names, f.Type)
			continue
		}
		name, _, _ := strings.Cut(tag, ",")
		if name != "" && name != "-" {
			names[name] = true
		}
	}
}
