/* What LuaJIT's interface has no function for. */

#include "lj_obj.h"
#include "lj_bc.h"
#include "lj_frame.h"
#include "lua.h"

/*
 * A hook that raises an error is over with that. LuaJIT itself takes it so only once the error has been caught: what
 * handles the error (xpcall) would have no hook until then, and could run for ever.
 */
void weir_leave_hook(lua_State *L)
{
  hook_leave(G(L));
}

/*
 * For a hook before an instruction: the line of the call that code has come back from, if the instruction before was
 * one; 0 elsewhere. What a function of C's has taken is found behind it, where another line may have begun. (Code that
 * has jumped to behind a call looks the same.)
 */
int weir_called_line(lua_State *L)
{
  GCfunc *fn = curr_func(L);
  void *cf = cframe_raw(L->cframe);
  const BCIns *pc;
  GCproto *pt;
  BCPos next;
  BCOp before;
  lua_Debug at;
  int is_known;
  if (!isluafunc(fn) || cf == NULL || (char *)cframe_pc(cf) == (char *)cframe_L(cf))
    return 0;
  pc = cframe_pc(cf);
  if (pc == NULL)
    return 0;
  pt = funcproto(fn);
  next = proto_bcpos(pt, pc) - 1;
  if (next < 2 || next >= pt->sizebc)  /* What a trace has left by has its own copy of the instruction. */
    return 0;
  before = bc_op(proto_bc(pt)[next - 1]);
  if (before != BC_CALL && before != BC_CALLM)
    return 0;
  setcframe_pc(cf, pc - 1);
  is_known = lua_getstack(L, 0, &at) && lua_getinfo(L, "l", &at);
  setcframe_pc(cf, pc);
  return is_known && at.currentline > 0 ? at.currentline : 0;
}

/* Whether the collector has called what runs (__gc): hooks are off as long as that does. */
int weir_in_finalizer(lua_State *L)
{
  return (G(L)->hookmask & HOOK_GC) != 0;
}
