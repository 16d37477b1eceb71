/* x[key] and x[key] = value. */
#include "binding.h"

int sc__get_index(lua_State *L, binding *b) { return sc__raise_text(L, b, "indexing is not there yet"); }
int sc__set_index(lua_State *L, binding *b) { return sc__raise_text(L, b, "indexing is not there yet"); }
void sc__open_index(lua_State *L, binding *b) { (void)L; (void)b; }
