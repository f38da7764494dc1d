/* What Rust's standard library asks of the system, and wine 8 has not: on top of what it has. */
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL ProcessPrng(PBYTE to, SIZE_T n) {
  while (n) {
    ULONG some = n > 65536 ? 65536 : (ULONG)n;
    if (!SystemFunction036(to, some)) return FALSE;
    to += some; n -= some;
  }
  return TRUE;
}
BOOL WINAPI DllMain(HINSTANCE h, DWORD why, LPVOID p) { return TRUE; }
