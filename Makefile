# Everything runs from a clean clone with Go, gcc, git and make alone; a target
# that needs a Debian or npm package says so and installs it with deps-*.
GO    ?= go
TAGS  := hashicorpmetrics
T     ?= 60s
NAMESPACES ?= $(if $(filter 0,$(shell id -u)),yes)
TEST_FAULT := DOMICILE_FAULT_TIME=$(T) $(GO) test -tags $(TAGS) -count 1 -v -timeout 0 -run '^TestFaults' ./cmd/domicile
BUILD := $(GO) build -tags $(TAGS) -trimpath -ldflags "-s -w -X main.commit=$(shell git rev-parse --short HEAD 2>/dev/null)"

.PHONY: build demo demo-regions test check race test-clients fuzz bench bench-proxy bench-directory bench-scale bench-node bench-failover bench-move bench-regions model test-fault soak generate clean

build:            ## bin/domicile
	CGO_ENABLED=0 $(BUILD) -o bin/domicile ./cmd/domicile

demo: build       ## a whole deployment in one process, with commands to try
	./bin/domicile dev

demo-regions: build ## three regions in network namespaces, one of them cut off (Linux, root)
	$(GO) run ./deploy/demo

test: check       ## everything that must be true of a commit
	$(GO) test -tags $(TAGS) -timeout 40m ./...

check:            ## every rule of the tree; fast
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet -tags $(TAGS) ./...
	$(GO) tool staticcheck -tags $(TAGS) ./...
	$(GO) mod tidy -diff
	$(GO) test -tags $(TAGS) .

race:             ## the tests under the race detector (needs gcc)
	CGO_ENABLED=1 $(GO) test -tags $(TAGS) -race -timeout 30m ./...

test-clients: build ## the libSQL clients of npm and Go against a real deployment (needs node and npm)
	./clients/run

model:            ## every interleaving of a small instance of the lease rule, and of the rule without each clause
	$(GO) run ./internal/leasemodel/walk -traces=false $(MODEL)

test-fault: ## scenarios, and faults at random under load for T (docs/faults.md); then again in network namespaces where root allows it
	$(TEST_FAULT)
	$(if $(NAMESPACES),DOMICILE_FAULT_NAMESPACES=yes $(TEST_FAULT))

soak: test-fault  ## the same for long: make soak T=24h

fuzz:             ## each fuzz target for T
	./.ci/fuzz $(T)

bench: bench-directory bench-node bench-proxy bench-scale bench-failover bench-move bench-regions

bench-proxy: build ## beside nginx and HAProxy (Debian's packages)
	$(GO) run -tags $(TAGS) ./bench proxy

bench-directory: build ## beside etcd (Debian's packages)
	$(GO) run -tags $(TAGS) ./bench directory

bench-scale: build ## a directory of a million tenants; some minutes
	$(GO) run -tags $(TAGS) ./bench scale

bench-failover: build ## copies, leases and failover; some minutes
	$(GO) run -tags $(TAGS) ./bench failover

bench-move: build  ## moves and drains under load; some minutes
	$(GO) run -tags $(TAGS) ./bench moves

bench-regions: build ## a relay between regions beside two nginx; a failover in a region that is cut off
	$(GO) run -tags $(TAGS) ./bench regions

bench-node: build ## beside SQLite in process
	$(GO) run -tags $(TAGS) ./bench node

generate:         ## protobuf code (needs Debian's protobuf-compiler)
	$(GO) generate ./proto/...

clean:
	rm -rf bin
