rockspec_format = "3.0"
package = "sconce"
version = "scm-1"
source = { url = "git+file://." }
description = {
  summary = "An embeddable deep-learning runtime: tensors, gradients, modules",
  detailed = "Tensors and neural networks for Lua 5.4, with a C11 engine over OpenBLAS.",
  license = "MIT",
}
dependencies = { "lua >= 5.4, < 5.5" }
external_dependencies = { OPENBLAS = { library = "openblas" }, ZLIB = { library = "z" } }
build = {
  type = "make",
  build_target = "rock",
  install_target = "rock-install",
  build_variables = { CC = "$(CC)", CFLAGS = "$(CFLAGS)", LUA_CFLAGS = "-I$(LUA_INCDIR)",
    LDFLAGS = "-L$(OPENBLAS_LIBDIR) -L$(ZLIB_LIBDIR)", BUILD = "build-rock" },
  install_variables = { BUILD = "build-rock", LUADIR = "$(LUADIR)", LIBDIR = "$(LIBDIR)" },
}
