/* Sets a server's event: its name and the server's number are told. Words with a dash are done to that process. */
#include <windows.h>
#include <tlhelp32.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
LONG NTAPI NtSuspendProcess(HANDLE);
LONG NTAPI NtResumeProcess(HANDLE);
static int children(DWORD of) {
  HANDLE all = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
  PROCESSENTRY32 one = { sizeof one };
  BOOL more;
  for (more = Process32First(all, &one); more; more = Process32Next(all, &one))
    if (one.th32ParentProcessID == of) printf("%lu ", (unsigned long)one.th32ProcessID);
  return 0;
}
int main(int count, char **words) {
  char name[200];
  HANDLE event, process;
  DWORD pid;
  if (count != 3) return 2;
  pid = strtoul(words[2], 0, 10);
  if (words[1][0] == '-') {
    if (!strcmp(words[1], "-children")) return children(pid);
    if (!(process = OpenProcess(PROCESS_ALL_ACCESS, FALSE, pid))) return 1;
    if (!strcmp(words[1], "-alive")) return WaitForSingleObject(process, 0) != WAIT_TIMEOUT;
    if (!strcmp(words[1], "-kill")) return !TerminateProcess(process, 137);
    if (!strcmp(words[1], "-suspend")) return NtSuspendProcess(process) != 0;
    return NtResumeProcess(process) != 0;
  }
  snprintf(name, sizeof name, "Global\\ngx_%s_%s", words[1], words[2]);
  event = OpenEventA(EVENT_MODIFY_STATE, FALSE, name);
  return !(event && SetEvent(event));
}
