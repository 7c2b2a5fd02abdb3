package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Configurations of nginx and HAProxy: one worker, keep-alive on both sides,
// no log, routing by a map of all tenants.

func startNginx(ctx context.Context, dir, listen, backend string, tenants int) (*process, error) {
	conf := fmt.Sprintf(`daemon off;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx.err warn;
events { worker_connections 9000; }
http {
  access_log off;
  keepalive_requests 1000000000;
  client_max_body_size 0;
  proxy_request_buffering off;
  proxy_max_temp_file_size 0;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  map_hash_max_size 262144;
  map_hash_bucket_size 128;
  map $tenant $node { default ""; include %[1]s/tenants.map; }
  map $uri $tenant { "~^/t/(?<t>[a-z0-9_-]+)/" $t; default ""; }
  upstream n1 { server %[2]s; keepalive 512; keepalive_requests 1000000000; }
  server {
    listen %[3]s reuseport;
    location / {
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_pass http://$node;
    }
  }
}
`, dir, backend, listen)
	if err := os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(conf), 0o600); err != nil {
		return nil, err
	}
	if err := writeMap(filepath.Join(dir, "tenants.map"), tenants, "n1;"); err != nil {
		return nil, err
	}
	return start(ctx, "nginx", nil, "nginx", "-p", dir, "-c", filepath.Join(dir, "nginx.conf"))
}

func startHAProxy(ctx context.Context, dir, listen, backend string, tenants int) (*process, error) {
	conf := fmt.Sprintf(`global
  nbthread 1
  maxconn 9000
defaults
  mode http
  option http-keep-alive
  http-reuse always
  option forwardfor
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend f
  bind %[1]s
  use_backend %%[path,field(3,/),map(%[2]s/haproxy.map)]
backend n1
  server s %[3]s
`, listen, dir, backend)
	if err := os.WriteFile(filepath.Join(dir, "haproxy.cfg"), []byte(conf), 0o600); err != nil {
		return nil, err
	}
	if err := writeMap(filepath.Join(dir, "haproxy.map"), tenants, "n1"); err != nil {
		return nil, err
	}
	return start(ctx, "haproxy", nil, "haproxy", "-db", "-f", filepath.Join(dir, "haproxy.cfg"))
}

func tenantName(i int) string { return fmt.Sprintf("tenant-%07d", i) }

func writeMap(file string, tenants int, value string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for i := range tenants {
		fmt.Fprintf(w, "%s %s\n", tenantName(i), value)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}
