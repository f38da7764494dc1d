/* The least that a proxy of TCP connections does: what one side sends is received and sent to the other.
   Usage: relay PORT TO (both on 127.0.0.1). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "answer.h"

enum { FILES = 65536 };
static int other[FILES];

static void watch(int set, int fd)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = fd};
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &e);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 1;
    int listening = listen_on(atoi(argv[1]), SOCK_NONBLOCK), set = epoll_create1(0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2])),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event first = {.events = EPOLLIN, .data.fd = listening}, events[512];
    char bytes[16384];

    epoll_ctl(set, EPOLL_CTL_ADD, listening, &first);
    for (;;) {
        int n = epoll_wait(set, events, 512, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd, s;
            if (fd != listening) {
                int to_fd = other[fd];
                ssize_t got = to_fd < 0 ? 0 : recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);

                if (got > 0)
                    send(to_fd, bytes, got, MSG_NOSIGNAL);
                else if (to_fd >= 0 && (got == 0 || errno != EAGAIN)) {
                    /* The other side may have an event of its own among these. */
                    other[fd] = other[to_fd] = -1;
                    close(fd);
                    close(to_fd);
                }
                continue;
            }
            while ((s = accept4(listening, 0, 0, 0)) >= 0) {
                int server = socket(AF_INET, SOCK_STREAM, 0);
                if (server < 0 || s >= FILES || server >= FILES
                    || connect(server, (struct sockaddr *)&to, sizeof to)) {
                    perror("connect");
                    return 1;
                }
                other[s] = server;
                other[server] = s;
                watch(set, s);
                watch(set, server);
            }
        }
    }
}
