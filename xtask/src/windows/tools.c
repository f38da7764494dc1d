/* What tests start as programs, and find on any Linux: each by its own name. `sh` knows what the tests' scripts have:
   commands one after the other, quotes, variables, and where output goes. */

#include <windows.h>
#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static const char *own_name;

/* Ends where nobody reads any more, as a signal would end it elsewhere. */
static void put(int to, const char *text, size_t n) {
  while (n) {
    int some = _write(to, text, n > 65536 ? 65536 : (unsigned)n);
    if (some <= 0) exit(141);
    text += some;
    n -= some;
  }
}

static void copy(int to) {
  static char room[65536];
  int n;
  while ((n = _read(0, room, sizeof room)) > 0) put(to, room, n);
}

static int run(int count, char **words, int to) {
  const char *name = words[0];
  int at, is_echo = !strcmp(name, "echo");
  if (!strcmp(name, "exec") && count > 1) exit(run(count - 1, words + 1, to));
  if (!strcmp(name, "exit")) exit(count > 1 ? atoi(words[1]) : 0);
  if (!strcmp(name, "sleep")) {
    Sleep((DWORD)(atof(count > 1 ? words[1] : "0") * 1000));
  } else if (!strcmp(name, "cat")) {
    copy(to);
  } else if (!strcmp(name, "yes")) {
    static char lines[8192];
    for (at = 0; at < (int)sizeof lines; at++) lines[at] = at % 2 ? '\n' : 'y';
    for (;;) put(to, lines, sizeof lines);
  } else if (!strcmp(name, "env")) {
    for (at = 0; environ[at]; at++) {
      put(to, environ[at], strlen(environ[at]));
      put(to, "\n", 1);
    }
  } else if (is_echo || !strcmp(name, "printf")) {
    for (at = 1; at < count; at++) {
      if (at > 1) put(to, " ", 1);
      put(to, words[at], strlen(words[at]));
    }
    if (is_echo) put(to, "\n", 1);
  } else if (strcmp(name, "true")) {
    fprintf(stderr, "sh: %s: not found\n", name);
    return 127;
  }
  return 0;
}

/* Appends what a variable is, and answers what stands behind its name. */
static const char *variable(const char *at, char *word) {
  char name[100];
  const char *value;
  size_t n = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
  if (*at == '0') return strcat(word, own_name), at + 1;
  if (*at == '$') return sprintf(word + strlen(word), "%lu", GetCurrentProcessId()), at + 1;
  snprintf(name, sizeof name, "%.*s", (int)n, at);
  if ((value = getenv(name))) strcat(word, value);
  return at + n;
}

/* The word that begins there, and what stands behind it. */
static const char *next(const char *at, char *word) {
  char quote = 0;
  *word = 0;
  for (; *at && (quote || !strchr(" ;\n<>", *at)); at++) {
    if (*at == quote) quote = 0;
    else if (!quote && (*at == '\'' || *at == '"')) quote = *at;
    else if (*at == '$' && quote != '\'') at = variable(at + 1, word) - 1;
    else strncat(word, at, 1);
  }
  return at;
}

static int script(const char *at) {
  static char words[20][4096], file[4096];
  char *list[20];
  int result = 0;
  while (*at) {
    int count = 0, to = 1, opened = -1;
    for (; *at && !strchr(";\n", *at);) {
      if (*at == ' ') {
        at++;
      } else if (!strncmp(at, ">&2", 3)) {
        to = 2;
        at += 3;
      } else if (*at == '>') {
        int how = at[1] == '>' ? O_APPEND : O_TRUNC;
        for (at++; *at == '>' || *at == ' '; at++) {}
        at = next(at, file);
        to = opened = _open(file, O_WRONLY | O_CREAT | O_BINARY | how, 0666);
      } else {
        list[count] = words[count];
        at = next(at, words[count++]);
      }
    }
    if (*at) at++;
    if (count) result = run(count, list, to);
    if (opened >= 0) _close(opened);
  }
  return result;
}

int main(int count, char **words) {
  static char text[65536];
  char *name = words[0];
  int at, file, n;
  for (at = 0; at < 3; at++) _setmode(at, O_BINARY);
  for (at = 0; words[0][at]; at++)
    if (strchr("/\\", words[0][at])) name = words[0] + at + 1;
  if (strlen(name) > 4 && !_stricmp(name + strlen(name) - 4, ".exe")) name[strlen(name) - 4] = 0;
  words[0] = name;
  if (strcmp(name, "sh") || count < 2) return run(count, words, 1);
  if (!strcmp(words[1], "-c")) {
    own_name = count > 3 ? words[3] : "sh";
    return script(count > 2 ? words[2] : "");
  }
  own_name = words[1];
  if ((file = _open(words[1], O_RDONLY | O_BINARY)) < 0) return 127;
  n = _read(file, text, sizeof text - 1);
  _close(file);
  text[n < 0 ? 0 : n] = 0;
  return script(text);
}
