package main

import "testing"

func TestAddressesOfServers(t *testing.T) {
	for s, want := range map[string]string{
		"c1:8070": "http://c1:8070", "http://c1:8070/": "http://c1:8070", "https://c1:8070": "https://c1:8070",
		"http://c1": "http://c1:80", "https://c1.example": "https://c1.example:443", "[::1]:8070": "http://[::1]:8070",
		"": "", "nonsense": "", "c1:": "", "http://": "", "http://c1:": "", "c1:0": "", "c1:65536": "", "c1:http": "", ":8070": "",
		"ftp://c1:1": "", "http://c1:1/path": "", "http://c1:1?x": "", "http://u@c1:1": "", "http://c1:1#x": "", "c 1:1": "",
	} {
		if got, ok := serverURL(s); got != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", s, got, ok, want)
		}
	}
}
