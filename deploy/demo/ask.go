package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// answer is what came back for a request, and after what time.
type answer struct {
	status int
	body   []byte
	took   time.Duration
	err    error
}

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	var told struct{ Error, Code string }
	if json.Unmarshal(a.body, &told) == nil && told.Code != "" {
		return fmt.Sprintf("%d %s (%s)", a.status, told.Code, told.Error)
	}
	return fmt.Sprintf("%d %s", a.status, strings.TrimSpace(string(a.body)))
}

// is reports whether the answer has that status and, unless it is "", that code.
func (a answer) is(status int, code string) bool {
	var told struct{ Code string }
	_ = json.Unmarshal(a.body, &told)
	return a.err == nil && a.status == status && (code == "" || told.Code == code)
}

// ask sends a request to a service. A key has one that is asked again done once.
func (d *deployment) ask(method, service, path, body, key string) answer {
	port, token := ":8090", "http-token"
	if strings.HasPrefix(path, "/_shard/") {
		token = "control-token"
	}
	req, err := http.NewRequest(method, "http://"+service+port+path, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	secret, err := os.ReadFile(filepath.Join(d.dir, "secrets", token))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+string(secret))
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	begin := time.Now()
	resp, err := d.client.Do(req)
	if err != nil {
		return answer{err: err, took: time.Since(begin)}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, body: data, err: err, took: time.Since(begin)}
}

// query runs a statement of a tenant through a proxy.
func (d *deployment) query(proxy, tenant, sql string) answer {
	body, _ := json.Marshal(map[string]string{"sql": sql})
	return d.ask(http.MethodPost, proxy, "/t/"+tenant+"/query", string(body), "")
}

// placed is what the directory tells of a tenant.
type placed struct {
	Name, Region, Node, Replica, State string
}

func (d *deployment) where(proxy, tenant string) (p placed, a answer) {
	a = d.ask(http.MethodGet, proxy, "/_shard/tenants/"+tenant, "", "")
	if a.err == nil && a.status == http.StatusOK {
		a.err = json.Unmarshal(a.body, &p)
	}
	return p, a
}
