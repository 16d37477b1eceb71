# sconce. `make demo` and `make test` install what is missing; `make help` lists the rest.
CC ?= cc
BUILD ?= build
PREFIX ?= /usr/local
LUA ?= lua5.4
LUA_CFLAGS ?= $(shell pkg-config --cflags lua5.4 2>/dev/null || echo -I/usr/include/lua5.4)
CFLAGS ?= -O2 -g
WARN = -Wall -Wextra -Wno-psabi
ALL_CFLAGS = -std=gnu11 $(CFLAGS) $(WARN) -fPIC -fvisibility=hidden -pthread $(EXTRA)
LIBS = -lopenblas -lz -lm -lpthread
# A program without shared libraries needs what OpenBLAS itself stands on (Fortran's library, for one).
STATIC_LIBS ?= $(shell pkg-config --static --libs openblas 2>/dev/null || echo -lopenblas) \
  $(if $(findstring /,$(shell $(CC) -print-file-name=libquadmath.a)),-lquadmath) -lz -lm -lpthread

ENGINE = $(wildcard csrc/*.c csrc/base/*.c csrc/tensor/*.c csrc/kernels/*.c csrc/ops/*.c csrc/autodiff/*.c csrc/graph/*.c csrc/formats/*.c)
BINDING = $(wildcard csrc/lua/*.c)
ENGINE_O = $(ENGINE:csrc/%.c=$(BUILD)/obj/%.o)
BINDING_O = $(BINDING:csrc/%.c=$(BUILD)/obj/%.o)

all: $(BUILD)/sconce/core.so $(BUILD)/libsconce.a $(BUILD)/libsconce.so $(BUILD)/libsconce-lua.a

$(BUILD)/obj/%.o: csrc/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(if $(findstring csrc/lua/,$<),$(LUA_CFLAGS)) -MMD -MP -c $< -o $@

$(BUILD)/sconce/core.so: $(ENGINE_O) $(BINDING_O)
	@mkdir -p $(@D)
	printf '{ global: luaopen_*; local: *; };' > $(BUILD)/core.map
	$(CC) -shared -o $@ $^ -Wl,--version-script=$(BUILD)/core.map $(LDFLAGS) $(LIBS)

$(BUILD)/libsconce.a: $(ENGINE_O)
	rm -f $@ && ar rcs $@ $^

# The binding with the engine in it: the binding uses what the engine's library keeps to itself.
$(BUILD)/libsconce-lua.a: $(ENGINE_O) $(BINDING_O)
	rm -f $@ && ar rcs $@ $^

$(BUILD)/libsconce.so: $(ENGINE_O)
	printf '{ global: sc_[a-z]*; local: *; };' > $(BUILD)/lib.map
	$(CC) -shared -o $@ $^ -Wl,--version-script=$(BUILD)/lib.map $(LDFLAGS) $(LIBS)

# Kernels never look at errno or floating-point flags; GCC believes that of the square root only from the command line.
$(BUILD)/obj/kernels/isa_%.o: ALL_CFLAGS += -fno-math-errno -fno-trapping-math

-include $(ENGINE_O:.o=.d) $(BINDING_O:.o=.d)

# ---- what people call ----
LUA_ENV = LUA_PATH='lua/?.lua;lua/?/init.lua;./?.lua;;' LUA_CPATH='$(BUILD)/?.so;;'

demo:
	@sh .ci/setup demo
	@$(MAKE) -s all
	$(LUA_ENV) $(LUA) examples/fashion.lua

# Every spec; the last line says so when everything passed.
test:
	@sh .ci/setup test
	@$(MAKE) -s all
	busted
	@busted --run=slow --tags=second & busted --run=slow --tags=slow --exclude-tags=second; ok=$$?; wait $$! && [ $$ok = 0 ]
	@echo "test: everything passed"

example:
	@test -f examples/$(NAME).lua || { echo "make example NAME=trees | charlm | session | fashion"; exit 1; }
	@$(MAKE) -s all
	$(LUA_ENV) $(LUA) examples/$(NAME).lua $(ARGS)

# eval "$(make -s env)": scripts anywhere find the checkout's module.
env:
	@echo "export LUA_PATH='$(CURDIR)/lua/?.lua;$(CURDIR)/lua/?/init.lua;./?.lua;;' LUA_CPATH='$(abspath $(BUILD))/?.so;;'"

repl:
	@$(MAKE) -s all
	$(LUA_ENV) $(LUA) -i -e 'sc = require "sconce"'

# The reference, and annotations for editors, out of the op table and the sources.
docs:
	@$(MAKE) -s all
	@mkdir -p $(BUILD)/docs
	$(LUA_ENV) $(LUA) docs/generate.lua $(BUILD)/docs

lint:
	luacheck -q lua spec examples bench docs
	$(MAKE) -s BUILD=$(BUILD)/lint EXTRA=-Werror $(BUILD)/lint/sconce/core.so
	cppcheck -q --std=c11 --error-exitcode=1 --enable=warning,portability --inline-suppr --suppressions-list=.ci/cppcheck -j2 -Icsrc $(ENGINE) $(BINDING)

SAN = -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined -DSC_DEBUG
sanitize:
	@sh .ci/setup test
	$(MAKE) -s BUILD=$(BUILD)/sanitize CFLAGS='$(SAN)' LDFLAGS='-fsanitize=address,undefined' $(BUILD)/sanitize/sconce/core.so
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" \
	  LUA_CPATH='$(BUILD)/sanitize/?.so;;' busted --cpath='$(BUILD)/sanitize/?.so' --exclude-tags=slow,rss

# The n-th allocation fails, for every n, in every scenario; memory is filled with a pattern.
hostile:
	$(MAKE) -s BUILD=$(BUILD)/hostile CFLAGS='-O1 -g' EXTRA='-DSC_HOSTILE -DSC_DEBUG' $(BUILD)/hostile/sconce/core.so
	LUA_PATH='lua/?.lua;lua/?/init.lua;./?.lua;;' LUA_CPATH='$(BUILD)/hostile/?.so;;' $(LUA) spec/hostile/run.lua $(ONLY)

# Programs in C against the public header; the same under the thread sanitizer.
CTESTS = $(wildcard spec/c/*.c)
LUA_LIBS ?= $(shell pkg-config --libs lua5.4 2>/dev/null || echo -llua5.4)
ctest: $(BUILD)/libsconce-lua.a
	@for t in $(CTESTS); do $(CC) -std=gnu11 -Wall -Wextra -g -pthread -Icsrc $(LUA_CFLAGS) $$t $(BUILD)/libsconce-lua.a $(LUA_LIBS) $(LIBS) -o $(BUILD)/ctest && echo $$t && $(LUA_ENV) $(BUILD)/ctest || exit 1; done

TSAN = -O1 -g -fsanitize=thread
tsan:
	$(MAKE) -s BUILD=$(BUILD)/tsan CFLAGS='$(TSAN)' LDFLAGS=-fsanitize=thread $(BUILD)/tsan/libsconce-lua.a
	@for t in $(CTESTS); do $(CC) -std=gnu11 $(TSAN) -pthread -Icsrc $(LUA_CFLAGS) $$t $(BUILD)/tsan/libsconce-lua.a $(LUA_LIBS) $(LIBS) -o $(BUILD)/tsan/ctest && echo $$t && $(LUA_ENV) TSAN_OPTIONS="halt_on_error=1 suppressions=spec/c/tsan.supp" $(BUILD)/tsan/ctest || exit 1; done

bench:
	@sh .ci/setup build
	@$(MAKE) -s all
	$(LUA_ENV) $(LUA) bench/run.lua '$(ONLY)' $(or $(PAIRS),5)
	$(LUA_ENV) $(LUA) bench/slices.lua '$(ONLY)'

# The readers of files under libFuzzer, a while each (needs clang). What it finds goes into spec/fuzz/corpus.
FUZZ_SECONDS ?= 60
FUZZ_ENGINE = $(wildcard csrc/base/*.c csrc/tensor/*.c) $(filter-out csrc/formats/model.c,$(wildcard csrc/formats/*.c)) csrc/kernels/halves.c
fuzz:
	@mkdir -p $(BUILD)/fuzz
	for f in safetensors npy npz gguf onnx; do \
	  clang -std=gnu11 -O1 -g -pthread -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION \
	    -DLOAD=$$f -o $(BUILD)/fuzz/$$f spec/fuzz/formats_fuzz.c $(FUZZ_ENGINE) -lz -lm && mkdir -p $(BUILD)/fuzz/corpus-$$f && \
	  $(BUILD)/fuzz/$$f -dict=spec/fuzz/formats.dict -max_len=4096 -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=$(BUILD)/fuzz/$$f- -print_final_stats=1 -verbosity=0 \
	    $(BUILD)/fuzz/corpus-$$f spec/fuzz/corpus/$$f || exit 1; \
	done
	clang -std=gnu11 -O1 -g -pthread -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION \
	  -Icsrc -o $(BUILD)/fuzz/graph spec/fuzz/graph_fuzz.c $(ENGINE) $(LIBS) && mkdir -p $(BUILD)/fuzz/corpus-graph && \
	$(BUILD)/fuzz/graph -dict=spec/fuzz/graph.dict -max_len=4096 -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=$(BUILD)/fuzz/graph- -print_final_stats=1 -verbosity=0 \
	  $(BUILD)/fuzz/corpus-graph spec/fuzz/corpus/graph

# ---- installing ----
LUADIR ?= $(PREFIX)/share/lua/5.4
LIBDIR ?= $(PREFIX)/lib/lua/5.4

install: all
	install -d $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/lib/pkgconfig
	install -m 644 csrc/sconce.h csrc/sconce_lua.h $(DESTDIR)$(PREFIX)/include/
	install -m 644 $(BUILD)/libsconce.a $(BUILD)/libsconce-lua.a $(DESTDIR)$(PREFIX)/lib/
	install -m 755 $(BUILD)/libsconce.so $(DESTDIR)$(PREFIX)/lib/
	printf 'prefix=%s\nlibdir=$${prefix}/lib\nName: sconce\nDescription: deep-learning runtime\nVersion: 0.1.0\nCflags: -I$${prefix}/include\nLibs: -L$${libdir} -lsconce\nLibs.private: $(STATIC_LIBS)\n' '$(PREFIX)' > $(DESTDIR)$(PREFIX)/lib/pkgconfig/sconce.pc
	printf 'prefix=%s\nlibdir=$${prefix}/lib\nluadir=%s\nName: sconce-lua\nDescription: sconce in a host with Lua 5.4\nVersion: 0.1.0\nCflags: -I$${prefix}/include $(LUA_CFLAGS)\nLibs: -L$${libdir} -lsconce-lua $(LUA_LIBS) $(LIBS)\n' '$(PREFIX)' '$(LUADIR)' > $(DESTDIR)$(PREFIX)/lib/pkgconfig/sconce-lua.pc
	$(MAKE) -s rock-install LUADIR='$(DESTDIR)$(LUADIR)' LIBDIR='$(DESTDIR)$(LIBDIR)'

rock: $(BUILD)/sconce/core.so

rock-install: rock
	install -d '$(LIBDIR)/sconce' '$(LUADIR)'
	install -m 755 $(BUILD)/sconce/core.so '$(LIBDIR)/sconce/'
	cd lua && find sconce -name '*.lua' -exec install -D -m 644 '{}' '$(LUADIR)/{}' ';'

help:
	@echo "make demo | test | lint | sanitize | fuzz | hostile | bench [ONLY=pattern] | example NAME=trees ARGS=… | repl | docs | env | install PREFIX=/usr/local"

clean:
	rm -rf $(BUILD) build-rock

.PHONY: all demo test example env repl docs lint sanitize hostile ctest tsan fuzz bench install rock rock-install help clean
