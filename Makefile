# Every target sets up what it needs on a clean Debian 12: as root it installs what is missing, else it says what is.
# The work itself is in scripts/; nothing here needs more than make and a POSIX shell.

CARGO := scripts/cargo
SETUP := scripts/setup
# For what a target runs: make run ARGS='--ephemeral --port 7000'
ARGS :=
# Whose PostgreSQL the extension is for
PG_CONFIG := pg_config
SEEDS := 1000
RUNS := 100000

.DEFAULT_GOAL := help
.PHONY: help run build deb test guard simulate pipelines fuzz regress isolation extension install-extension deb-extension builtin cluster-test restarts compat bench reference tidy lint format deny clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## set up, build, and start a PostgreSQL with Weir in front of it (ARGS='--ephemeral --port 7000')
	@$(SETUP) build
	@exec scripts/run $(ARGS)

build: ## build target/release/weir and weir-lab
	@$(SETUP) build
	@$(CARGO) build --release -p weir -p weir-lab

deb: ## make target/package/weir_VERSION_ARCHITECTURE.deb
	@$(SETUP) build
	@$(CARGO) build --release -p weir
	@mkdir -p target/package
	@$(CARGO) run -p xtask -- package target/release/weir target/package

test: ## run everything that CI runs (STEPS='clippy unit' runs only those)
	@$(SETUP) test
	@SEEDS=$(SEEDS) RUNS=$(RUNS) scripts/test $(STEPS)

guard: ## hold what a transaction costs against its bounds (LOWER=1 writes the bounds that fell)
	@$(SETUP) guard
	@scripts/guard $(if $(LOWER),--lower)

simulate: ## run the simulator (SEEDS=1000; SEED=7 replays one; PLANTED=1 must catch the planted bugs; SCALING=1: cores)
	@$(SETUP) build
	@$(CARGO) run --profile simulate -p weir-simulator --features planted -- $(if $(SCALING),--scaling,$(if $(PLANTED),--planted --seeds 1000,$(if $(SEED),--seed $(SEED),--seeds $(SEEDS))))

pipelines: ## compare random pipelines through Weir with PostgreSQL itself (RUNS=100000; SEED=7; ARGS='--differences 100')
	@$(SETUP) build
	@$(CARGO) build -p weir
	@$(CARGO) run -p weir-simulator -- --pipelines $(RUNS) --seed $(or $(SEED),1) $(ARGS)

fuzz: ## run each fuzz target (RUNS=100000)
	@$(SETUP) build
	@scripts/fuzz $(RUNS)

regress: ## PostgreSQL's regression tests straight and through Weir (SOURCE=path of its source; STATE=keep; ORDER=serial|parallel; POOL=20)
	@[ -n "$(SOURCE)" ] || { echo "make regress SOURCE=path of PostgreSQL's source"; exit 2; }
	@$(SETUP) test
	@$(CARGO) build -p weir
	@POOL=$(or $(POOL),20) scripts/regress $(SOURCE) $(or $(STATE),keep) $(or $(ORDER),serial)

isolation: ## PostgreSQL's isolation tests straight and through Weir (SOURCE=path of its source; STATE=keep; POOL=20)
	@[ -n "$(SOURCE)" ] || { echo "make isolation SOURCE=path of PostgreSQL's source"; exit 2; }
	@$(SETUP) test
	@$(CARGO) build -p weir
	@POOL=$(or $(POOL),20) scripts/isolation $(SOURCE) $(or $(STATE),keep)

extension: ## build the extension for PostgreSQL (PG_CONFIG=path of pg_config)
	@$(MAKE) -C extension PG_CONFIG=$(PG_CONFIG)

install-extension: ## build and install it, as who may write there (PG_CONFIG=path of pg_config)
	@$(MAKE) -C extension install PG_CONFIG=$(PG_CONFIG)

deb-extension: ## make target/package/postgresql-NN-weir_VERSION_ARCHITECTURE.deb (PG_CONFIG=path of pg_config)
	@scripts/extension-deb $(PG_CONFIG) target/package

builtin: ## test Weir built into PostgreSQL (BIN=/usr/lib/postgresql/15/bin; ARGS='crash'; INCLUDE=path of other headers)
	@$(SETUP) test
	@$(CARGO) build -p weir
	@BIN=$(or $(BIN),/usr/lib/postgresql/15/bin) INCLUDE=$(INCLUDE) scripts/builtin $(ARGS)

cluster-test: ## Weir in front of a real Citus cluster (NODES=host:port,... the coordinator first; SECONDS=5)
	@[ -n "$(NODES)" ] || { echo "make cluster-test NODES=host:port,..., the coordinator first"; exit 2; }
	@$(CARGO) build --release -p weir
	@scripts/cluster-test $(NODES) $(or $(SECONDS),5)

restarts: ## restart Weir in place under pgbench and count what its clients see (TIMES=50 CLIENTS=200)
	@$(SETUP) test
	@$(CARGO) build -p weir
	@CLIENTS=$(or $(CLIENTS),200) scripts/restarts $(or $(TIMES),50)

compat: ## PgBouncer's own tests on Weir (SOURCE=path of its source; ARGS='-n 2')
	@[ -n "$(SOURCE)" ] || { echo "make compat SOURCE=path of PgBouncer's source"; exit 2; }
	@$(SETUP) test
	@$(CARGO) build -p weir
	@scripts/compat $(SOURCE) $(ARGS)

bench: ## measure beside PgBouncer and others (QUICK=1; PART=speed,flat; PGBOUNCER=path; PEER_name=port; ARGS='--rounds 5')
	@$(SETUP) bench
	@$(CARGO) build --release -p weir
	@$(CARGO) run --release -p weir-bench -- bench --weir target/release/weir $(if $(QUICK),--quick) $(if $(PART),--part $(PART)) $(ARGS)

reference: ## write the pages of settings and limits anew
	@$(SETUP) build
	@$(CARGO) run -p xtask -- reference

tidy: ## check the house rules
	@$(SETUP) build
	@$(CARGO) run -p xtask -- tidy

lint: ## formatting, clippy and the house rules
	@$(SETUP) build
	@scripts/test format clippy targets tidy reference scripts

format: ## format the code
	@$(SETUP) build
	@$(CARGO) fmt --all

deny: ## check the licences and sources of all dependencies
	@$(SETUP) deny
	@scripts/test deny

clean: ## remove what was built (.cache keeps the tools that set-up fetched)
	rm -rf target fuzz/target
