# Weir. On a fresh machine: make run, make test. Nothing here needs root, except to install missing Debian packages.

SHELL := /bin/bash
.DEFAULT_GOAL := weir
GO ?= scripts/go
export CGO_ENABLED := 0
VERSION := $(shell git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
LAB := ./weir-lab run

.PHONY: help need-run need-test need-all run quic autorate test test-all newest test-machines test-kernels generate bench lab-kernel kernels tc reference dist deps weir check cross reproducible fuzz mutate results results-rules results-dualpi2 results-dualpi2-matrix results-cc-kernels results-shaper clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

weir: ## build the two static binaries, weir and weir-lab
	@scripts/need go
	$(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o . ./cmd/weir ./cmd/weir-lab

quic: ## build weir-quic beside it, which the lab's scenarios of QUIC run
	@scripts/need go
	$(GO) -C internal/lab/quic vet .
	$(GO) -C internal/lab/quic build -trimpath -ldflags '-s -w' -o $(CURDIR)/weir-quic .

autorate: ## build weir-autorate beside it, which a few scenarios of weir follow run
	@scripts/need go
	$(GO) build -trimpath -ldflags '-s -w' -o weir-autorate ./internal/lab/autorate

lab-kernel: ## build the lab's kernel into the user's cache, unless it is there; LINUX=PATH: of that tree or tarball
	@scripts/need lab-kernel
	@internal/lab/uml/kernel/build

newest: ## what the results would be with the newest linux-source there is: they differ from what is committed by that alone
	@scripts/need lab-kernel
	@internal/lab/uml/kernel/build --newest
	@$(MAKE) --no-print-directory remake-results
	@git diff --stat -- results README.md internal/plan

kernels: ## fetch stock Debian kernels into the user's cache, unless they are there: those of KERNELS (default: the newest, and the oldest that is tested)
	@scripts/need kernels
	@internal/lab/qemu/kernels $(or $(KERNELS),newest 6.1)
	@internal/lab/qemu/clock

tc: ## fetch the newest tc into the user's cache, unless it is there: tests compare with it
	@scripts/need kernels
	@scripts/tc >/dev/null

reference: kernels ## build the kernel's own sch_dualpi2 for the newest stock kernel, unless it is there
	@scripts/need reference
	@internal/lab/qemu/reference

run: need-run ## the main job: a narrow link and a VPN relay made calm, their tables, and report.html
	@$(MAKE) --no-print-directory -j2 lab-kernel weir
	$(LAB) --html report.html scenarios/narrow-link.toml scenarios/relay.toml
	@echo "report.html has the pictures."

test: need-test ## what no load, clock, network or browser can change: minutes
	@$(MAKE) --no-print-directory -j2 lab-kernel weir
	@$(MAKE) --no-print-directory kernels KERNELS=newest
	@$(MAKE) --no-print-directory tc check
	$(GO) run ./internal/testrun -timeout 3h ./...

test-all: need-all ## that and all the rest, before an issue is resolved or a release is made: stock kernels, machines, packages, fleet, browsers, documents
	@$(MAKE) --no-print-directory -j2 lab-kernel weir
	@$(MAKE) --no-print-directory kernels tc check cross
	@scripts/promtool >/dev/null
# Whole machines have real clocks, and no CPU for themselves beside the lab: they come last, alone.
	others=$$($(GO) list -tags all ./... | grep -v '/lab/machine$$') || exit; \
	$(GO) run ./internal/testrun -tags all -timeout 6h $$others; failed=$$?; \
	$(GO) run ./internal/testrun -tags all -timeout 6h ./internal/lab/machine && exit $$failed

test-machines: dist ## every fault on every Debian and network manager, and relays, emulated; writes results/reliability.md and results/relay-machines.md
	@scripts/need go machines
	WEIR_RELIABILITY=$(CURDIR)/results/reliability.md WEIR_RELAYS=$(CURDIR)/results/relay-machines.md $(GO) test -tags all,machines -count=1 -v -timeout 24h -run 'TestMachines|TestWire|TestRelays|TestPeers|TestFleet' ./internal/lab/machine

test-kernels: lab-kernel tc weir ## on every stock kernel that users have: the BPF DualPI2 and shaper, their cost beside the kernel's own qdiscs, and that filters come back
	@$(MAKE) --no-print-directory kernels KERNELS="6.1 6.12 6.17 6.18 7.2 7.3"
	@$(MAKE) --no-print-directory reference
	@scripts/need generate
	$(GO) run ./internal/testrun -tags all,kernels -count=1 -timeout 6h -run 'TestKernels|TestCost|TestBenchCounted|TestStockKernel|TestObject|TestEngines|TestControlOnKernels|TestBoot' ./internal/dualpi2 ./internal/shaper ./internal/rtt ./internal/lab ./internal/lab/qemu ./internal/qdisc ./cmd/weir

generate: ## build the BPF programs anew, from C
	@scripts/need go generate
	$(GO) generate ./internal/dualpi2 ./internal/rtt ./internal/bbr ./internal/shaper

check: weir ## is it formatted, vetted, and in plain words?
	@unformatted=$$($$($(GO) env GOROOT)/bin/gofmt -l cmd internal packaging); [ -z "$$unformatted" ] || { echo "not gofmt'ed: $$unformatted"; exit 1; }
	$(GO) vet -tags all,kernels,machines ./...
	@scripts/words

cross: ## does it build for the other systems, and is go.mod tidy?
	$(GO) vet -tags man ./cmd/weir ./cmd/weir-lab
	@for os in darwin windows; do GOOS=$$os $(GO) build ./cmd/weir ./internal/text || exit 1; done
	$(GO) mod tidy -diff

fuzz: ## each fuzz target for FUZZTIME (default 30s)
	@scripts/fuzz $(or $(FUZZTIME),30s)

mutate: ## N (default 200) small mistakes in the packages that decide and change, chosen by SEED: do their tests see them?
	@scripts/need go
	$(GO) run ./internal/mutate -n $(or $(N),200) -seed $(or $(SEED),1) internal/qdisc internal/plan internal/change internal/units internal/doctor

bench: lab-kernel weir ## how fast the lab is; what the commands cost that only look; and, after make reference, what a packet costs
	@scripts/bench

# The pages that the lab's kernel makes. Each is written whole or not at all.
PAGES ?= seeds evidence relay peers programs traffic follow watch cc

results: ## what the lab's kernel makes of results/, and the README's tables, with the newest linux-source there is; or some PAGES: measure and calibrate are two more (a test runs seeds, evidence and the README again)
	@scripts/need lab-kernel
	@internal/lab/uml/kernel/build --pin
	@$(MAKE) --no-print-directory remake-results

.PHONY: remake-results
remake-results: weir quic autorate
	@scripts/results $(PAGES)
	@scripts/readme-table
	@$(GO) test ./internal/plan -run TestFigures -update # what the rules quote, and then what is said of it
	@$(GO) test ./internal/plan -run TestAllThatIsSaid -update

results-rules: lab-kernel reference weir ## results/rules.md, or what SECTION (a word of a command) makes of it: its costs of a packet are a stock kernel's
	@scripts/results rules -- $(SECTION)

results-dualpi2: lab-kernel reference weir ## results/dualpi2.md, or what SECTION (a word of a command) makes of it: 180 boots of a stock kernel, an hour
	@scripts/results dualpi2 -- $(SECTION)

results-cc-kernels: reference weir ## results/cc-kernels.md: 40 boots of stock kernels, half an hour
	@$(MAKE) --no-print-directory kernels KERNELS="6.1 6.12 newest"
	@scripts/results cc-kernels

results-shaper: reference weir ## results/shaper.md: six runs in a stock kernel with four queues, twenty minutes
	@$(MAKE) --no-print-directory kernels KERNELS=newest
	@scripts/results shaper

results-dualpi2-matrix: reference weir ## results/dualpi2-matrix.md: four ratios of flows at every rate and RTT, for both DualPI2s, in 96 boots of a stock kernel: 20 minutes or more
	@scripts/results dualpi2-matrix

dist: lab-kernel ## static binaries and packages (.deb, .rpm, .apk, .pkg.tar.zst) for amd64 and arm64; and programs to measure from macOS and Windows
	@scripts/need go dist
	@rm -rf dist
	@scripts/dist dist amd64 arm64 darwin/arm64 darwin/amd64 windows/amd64 windows/arm64

reproducible: lab-kernel ## is what make dist makes the same, byte for byte, from another clone with an empty cache?
	@scripts/need go dist
	@scripts/reproducible

# All that is missing is named at once, before anything is made.
need-run:
	@scripts/need go lab-kernel

need-test:
	@scripts/need go lab-kernel kernels

need-all:
	@scripts/need go lab-kernel kernels test dist machines generate

deps: ## install the Debian packages that the other targets need
	@scripts/need go lab-kernel kernels test dist machines generate

clean:
	rm -rf weir weir-lab weir-quic weir-autorate dist report.html
