# sconce. `make demo` and `make test` install what is missing; `make help` lists the rest.
CC ?= cc
BUILD ?= build
PREFIX ?= /usr/local
LUA ?= lua5.4
LUA_CFLAGS ?= $(shell pkg-config --cflags lua5.4 2>/dev/null || echo -I/usr/include/lua5.4)
CFLAGS ?= -O2 -g
WARN = -Wall -Wextra
ALL_CFLAGS = -std=gnu11 $(CFLAGS) $(WARN) -fPIC -fvisibility=hidden -pthread $(EXTRA)
LIBS = -lopenblas -lz -lm -lpthread

ENGINE = $(wildcard csrc/base/*.c csrc/tensor/*.c csrc/kernels/*.c csrc/ops/*.c csrc/autodiff/*.c csrc/graph/*.c csrc/formats/*.c)
BINDING = $(wildcard csrc/lua/*.c)
ENGINE_O = $(ENGINE:csrc/%.c=$(BUILD)/obj/%.o)
BINDING_O = $(BINDING:csrc/%.c=$(BUILD)/obj/%.o)

all: $(BUILD)/sconce/core.so $(BUILD)/libsconce.a $(BUILD)/libsconce.so

$(BUILD)/obj/%.o: csrc/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(if $(findstring csrc/lua/,$<),$(LUA_CFLAGS)) -MMD -MP -c $< -o $@

$(BUILD)/sconce/core.so: $(ENGINE_O) $(BINDING_O)
	@mkdir -p $(@D)
	printf '{ global: luaopen_*; local: *; };' > $(BUILD)/core.map
	$(CC) -shared -o $@ $^ -Wl,--version-script=$(BUILD)/core.map $(LDFLAGS) $(LIBS)

$(BUILD)/libsconce.a: $(ENGINE_O)
	rm -f $@ && ar rcs $@ $^

$(BUILD)/libsconce.so: $(ENGINE_O)
	printf '{ global: sc_[a-z]*; local: *; };' > $(BUILD)/lib.map
	$(CC) -shared -o $@ $^ -Wl,--version-script=$(BUILD)/lib.map $(LDFLAGS) $(LIBS)

-include $(ENGINE_O:.o=.d) $(BINDING_O:.o=.d)

clean:
	rm -rf $(BUILD)

.PHONY: all clean
