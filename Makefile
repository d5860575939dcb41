# Coldaisle. `make` lists what there is.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GOLANGCI_VERSION := v2.15.0
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)
# The changelog's newest version, and the commit.
VERSION ?= $(shell sed -n 's/^.. \[\(.*\)\].*/\1/p' docs/CHANGELOG.md | head -n 1)+$(shell git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

.PHONY: check
check: ## Say what this machine lacks for make run and make test, and how to get it
	@.ci/check test

.PHONY: run
run: checked page ## Run the whole system with simulated nodes and print where to look (ARGS="--nodes 20 --speed 10")
	@go build -o bin/coldaisle ./run/local
	@exec bin/coldaisle $(ARGS)

.PHONY: replay
replay: ## Send a recording through a system of its own and account for every row (FILE=recording.csv)
	@test -n "$(FILE)" || { echo "say which file: make replay FILE=recording.csv"; exit 2; }
	@go build -o bin/soak ./run/tools/soak
	@exec bin/soak -replay "$(FILE)"

# Before anything is built.
.PHONY: checked
checked:
	@.ci/check

.PHONY: model
model: ## Try 20,000 commands against the model of the whole, in two minutes
	go test -count=1 -v -run '^TestScripts$$' ./run/local/modeltest

# What computes alone, without a goroutine, and would take a third of run/api's time in the race detector.
UNRACED := golang.org/x/crypto/blowfish compress/flate
TESTS ?= ./...
PAGE_TESTS ?= run/dashboard/test.sh
# What takes as long as all others together: chaos, whole releases, networks, learning on a laboratory's month.
LONG := edge-gateway/netnstest run/local/(modeltest|redeliverytest) run/tools/(ml|nodecheck|release|soak)
# Without vet, which would be a fifth of a first build: make lint runs it.
.PHONY: test test-all
test: ## Run the tests of ten minutes with the race detector, and the dashboard's in a browser
test-all: ## Run all tests with the race detector, as CI does
test: export SHORT := 1
test: TESTS = -short $$(go list ./... | grep -vE '/($(subst $() ,|,$(LONG)))(/|$$)')
test test-all:
	@.ci/check test
	@log=$$(mktemp); NOT_TRIED=$$(mktemp); export NOT_TRIED; trap 'rm -f "$$log" "$$NOT_TRIED"' EXIT; failed=0; \
	go test -race -vet=off $(UNRACED:%=-gcflags=%=-race=false) -timeout 40m $(TESTS) 2>&1 | tee "$$log" || failed=1; \
	$(PAGE_TESTS) 2>&1 | tee -a "$$log" || failed=1; \
	if ((failed)); then echo "failed:"; grep -aE '^ *--- FAIL|^FAIL|^panic:|✘|^ *FAIL ' "$$log" || true; fi; \
	sed -n '/^program /!s/^/skipped: /p' "$$NOT_TRIED" | sort -u; \
	programs=$$(sed -n 's/^program //p' "$$NOT_TRIED" | sort -u | paste -sd, - | sed 's/,/, /g'); \
	if [[ -n $$programs ]]; then echo "NOT TRIED HERE: $$programs; .ci/install installs them"; fi; exit $$failed

BENCHMARKS := edge-gateway:ResidentMemory edge-gateway/gateway:Gateway edge-gateway/gateway:Away \
	functions/ingest:Instance functions/detect:Observe shared/learn:Train shared/forest:IsolationScoreOneRow \
	shared/readings/pgreadings:Append shared/store:NodeStates/1000_nodes shared/store:Judge shared/store:IncidentsPage \
	run/api:IncidentsAtSize run/api:Endpoints run/api:LoginFlood run/local/system:Reading
BENCHSTAT := golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
COUNT ?= 6
.PHONY: bench
bench: ## Run the headline benchmarks, and summarise them (COUNT=6 runs each; BASE=bin/bench.txt compares with an earlier file)
	@mkdir -p bin; results=bin/bench-$$(date +%Y%m%dT%H%M%S).txt; \
	for benchmark in $(BENCHMARKS); do \
		name=Benchmark$${benchmark#*:}; \
		go test -run '^$$' -bench "^$$name$$" -benchmem -count $(COUNT) -timeout 60m "./$${benchmark%:*}" | tee -a "$$results"; \
		grep -q "^$$name" "$$results" || { echo "no $$name in $${benchmark%:*}"; exit 1; }; \
	done; \
	go run $(BENCHSTAT) $(BASE) "$$results"

DURATION ?= 10m
NODES ?= 2000
.PHONY: soak
soak: ## Run the system under load while components are killed, and account for every reading (DURATION=10m NODES=2000)
	@go build -o bin/soak ./run/tools/soak
	@exec bin/soak -duration $(DURATION) -nodes $(NODES) $(ARGS)

.PHONY: chaos
chaos: ## Run the chaos scenarios, from a full disk to a jumping clock, and print the result of each
	@NIGHTLY=1 go test -count=1 -v -timeout 60m -run '^(TestChaos|TestReadingsThroughClockFaults)$$' ./run/tools/soak ./run/local/redeliverytest

.PHONY: pair-chaos
pair-chaos: ## Kill one of two gateways every 20 s for 10 minutes, with 200 nodes, and account for every reading (Linux, root)
	@PAIR_KILLS=30 PAIR_EVERY=20s PAIR_INTERVAL=10s go test -count=1 -v -timeout 30m -run '^TestPairUnderKills$$' ./edge-gateway/netnstest

.PHONY: backlog
backlog: ## Drain a million readings from a gateway's outbox beside live ones, and compare what these wait (more than 20 minutes)
	@GATEWAY_BACKLOG=1000000 go test -exec "$$(chrt --fifo 1 true 2>/dev/null && echo chrt --fifo 1)" -timeout 60m -run '^$$' -bench '^BenchmarkBacklog$$' -benchtime 1x ./edge-gateway/gateway

KILLS ?= 20
.PHONY: kills
kills: ## Kill the local system and its PostgreSQL under load, and account for every reading (KILLS=20)
	@KILLS=$(KILLS) go test -count=1 -v -timeout 30m -run '^TestLocalSystem$$' ./run/tools/soak

FUZZTIME ?= 30s
.PHONY: incidents
incidents: ## Replay a month through killed processes, a day of 5,000 nodes and a backlog of 1,000, and time the list
	@INCIDENTS=long go test -timeout 3h -v -run 'TestOrderOfArrivalChangesNothing|TestSilences24Hours|TestBacklogCallsNobody' ./shared/store
	@go test -run '^$$' -bench 'Judge|IncidentsPage' ./shared/store

.PHONY: demo-day
demo-day: ## Run the nodes of make run for a simulated day, and compare what people are told with the faults sown
	@NIGHTLY=1 go test -count=1 -v -timeout 30m -run '^TestDemoDay$$' ./run/local/system

.PHONY: fuzz
fuzz: ## Run every fuzz target for a while (FUZZTIME=30s)
	@.ci/fuzz $(FUZZTIME)

.PHONY: lint
lint: $(GOLANGCI) ## Check format, style and the import rule
	$(GOLANGCI) run ./...
	run/api/lint/lint.sh

$(GOLANGCI):
	@mkdir -p bin
	GOBIN="$(CURDIR)/bin" go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv bin/golangci-lint $@

.PHONY: terraform
terraform: ## Check and test the cloud's configuration, without a project
	@.ci/terraform

.PHONY: shipped
shipped: ## Compare the calibration that customers begin with with what makes it
	@go run ./run/tools/ml shipped | cmp - shared/anomaly/shipped.calibration

# Of what no program reaches, only what tests use may stay: test support and what
# reads terraform.
DEADCODE := golang.org/x/tools/cmd/deadcode@v0.51.0
ONLY_TESTS := edge-gateway/enrolment/enrolmenttest shared/must shared/openapitest shared/pgtest shared/pubsubtest shared/tooltest \
	shared/wire/data.go shared/function/functiontest shared/logging/logtest \
	shared/readings/bqreadings/bqtest run/tools/release/tfenv
.PHONY: deadcode
deadcode: ## List functions that no program reaches, and fail when there are any
	@found=$$(go run $(DEADCODE) ./...); \
	if grep -v $(ONLY_TESTS:%=-e '^%[/:]') <<<"$$found"; then exit 1; fi

.PHONY: rehearsal
rehearsal: ## Run releases, their failures, a roll-back and the operating pages' commands against fakes of Google Cloud
	NIGHTLY=1 go test -count=1 -timeout 60m ./run/tools/release

.PHONY: build
build: page ## Build every program into bin/, the gateway for every machine into bin/gateway/
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/ ./run/server
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/coldaisle ./run/local
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/monitor-gateway ./edge-gateway
	edge-gateway/packaging/build.sh bin/gateway $(VERSION)

.PHONY: packages
packages: build ## Pack the gateway of bin/gateway/ as Debian packages and tarballs, with checksums, signed with SIGNING_KEY=FILE
	edge-gateway/packaging/package.sh bin/gateway $(VERSION)

# The dashboard, built when one of its files is newer, and Redoc, which shows the API's
# documentation. The programs work without them, and then say how to build them.
PAGE := run/dashboard/site/built/index.html
PAGE_SOURCES := $(shell find run/dashboard/src run/dashboard/public -type f ! -name schema.d.ts 2>/dev/null) \
	run/dashboard/index.html run/dashboard/package-lock.json run/dashboard/vite.config.ts run/api/openapi.json

REDOC := run/api/pages/site/built/redoc.standalone.js

.PHONY: page
page: ## Build the dashboard and fetch Redoc (needs Node.js 20)
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(PAGE) $(REDOC); \
	else echo "no dashboard and no /redoc: they are built with npm, which is not installed (Debian: apt-get install npm; macOS: brew install node)"; fi

$(PAGE): $(PAGE_SOURCES)
	@echo "building the dashboard"
	@cd run/dashboard && npm ci --silent --no-audit --no-fund && npm run --silent build >/dev/null
	@touch $@

$(REDOC): run/api/pages/package-lock.json run/api/pages/build.mjs
	@echo "fetching Redoc"
	@cd run/api/pages && npm ci --silent --no-audit --no-fund --ignore-scripts && npm run --silent build

.PHONY: lighthouse
lighthouse: ## Score the dashboard's pages with Lighthouse, which it installs
	@cd run/dashboard && { [ -d node_modules ] || npm ci --silent; } && npm run --silent lighthouse

.PHONY: tab-soak
tab-soak: ## Leave a tab with the dashboard open for an hour, and look at its memory
	@cd run/dashboard && { [ -d node_modules ] || npm ci --silent; } && npm run --silent build && SOAK=3600 npx playwright test soak

.PHONY: looks
looks: ## Look at every page of the dashboard in every size and colour scheme
	@cd run/dashboard && { [ -d node_modules ] || npm ci --silent; } && NIGHTLY=1 npx playwright test pages

.PHONY: pictures
pictures: page ## Take README's pictures from make run after its fault (FOLDER=shots for its first ten minutes, too)
	@go build -o bin/coldaisle ./run/local
	@cd run/dashboard && { [ -d node_modules ] || npm ci --silent; } && node scripts/pictures.mjs $(if $(FOLDER),$(abspath $(FOLDER)))

.PHONY: clean
clean: ## Remove what was built; data stays
	rm -rf bin run/dashboard/site/built run/api/pages/site/built
