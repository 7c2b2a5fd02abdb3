package controlplane

import "testing"

func TestAddressesHaveOneForm(t *testing.T) {
	for given, want := range map[string]string{
		"10.0.0.1:80": "10.0.0.1:80", "Node-1.example:8081": "node-1.example:8081", "[::1]:80": "[::1]:80",
		"http://a:1": "http://a:1", "HTTPS://A:1/": "https://a:1", "http://[FE80::1]:80/": "http://[fe80::1]:80",
		"": "", "a": "", "a:": "", ":80": "", "a:0": "", "a:080": "", "a:65536": "", "a:+1": "", "::1:80": "", "[::1]": "",
		"a b:1": "", "a\n:1": "", "u@a:1": "", "http://u:p@a:1": "", "http://a:1//": "", "http://a:1/x": "", "http://a:1?q": "",
		"http://a:1#f": "", "http://a": "", "ftp://a:1": "", "://a:1": "", "//a:1": "", "a:1/": "", "a:http": "", "[a]:1": "",
		"http://http://a:1": "",
	} {
		got, err := nodeAddress(given)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q becomes %q, %v; want %q", given, got, err, want)
		}
	}
}

func FuzzNodeAddress(f *testing.F) {
	f.Add("http://a:1")
	f.Add("[::1]:80")
	f.Fuzz(func(t *testing.T, s string) {
		once, err := nodeAddress(s)
		if err != nil {
			return
		}
		if twice, err := nodeAddress(once); err != nil || twice != once {
			t.Errorf("%q becomes %q, then %q, %v", s, once, twice, err)
		}
	})
}
