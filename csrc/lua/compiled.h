/* Calls of compiled functions: signatures (signature.c), guards of what was captured (guard.c), and the way from one call to the plan
** that fits it (compiled.c). */
#ifndef SC_LUA_COMPILED_H
#define SC_LUA_COMPILED_H

#include "binding.h"

enum { SC_SIGNATURE_ROOM = 4096, SC_MOST_ARGUMENTS = 127 };

typedef struct plan_box { sc_plan *p; int n_in, n_out; } plan_box;
plan_box *sc__check_plan(lua_State *L, int at);

/* The signature of the arguments at first … last into room; returns its length. x: the tensors among them, NULL for other values.
** sizes false: without what depends on sizes. Raises for arguments that no compiled function takes. */
int sc__signature(lua_State *L, binding *b, int first, int last, bool sizes, char *room, sc_tensor **x);

/* Whether all that the guard at `at` watches is as it was when it was made. */
bool sc__guard_holds(lua_State *L, binding *b, int at);

#endif
