/* What LuaJIT's interface has no function for. */

#include "lj_obj.h"

/*
 * A hook that raises an error is over with that. LuaJIT itself takes it so only once the error has been caught: what
 * handles the error (xpcall) would have no hook until then, and could run for ever.
 */
void weir_leave_hook(lua_State *L)
{
  hook_leave(G(L));
}

/* Whether the collector has called what runs (__gc): hooks are off as long as that does. */
int weir_in_finalizer(lua_State *L)
{
  return (G(L)->hookmask & HOOK_GC) != 0;
}
