/* The least that a server does for a request kept alive: one recv, one send, edge-triggered epoll.
   It answers whatever it reads with 200 "OK". Usage: epoll PORT (on 127.0.0.1). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "answer.h"

int main(int argc, char **argv)
{
    int listening = listen_on(argc > 1 ? atoi(argv[1]) : 0, SOCK_NONBLOCK);
    int set = epoll_create1(0), on = 1;
    struct epoll_event first = {.events = EPOLLIN, .data.fd = listening}, events[512];
    char bytes[4096];

    epoll_ctl(set, EPOLL_CTL_ADD, listening, &first);
    for (;;) {
        int n = epoll_wait(set, events, 512, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd, s;
            if (fd != listening) {
                ssize_t got = recv(fd, bytes, sizeof bytes, 0);
                if (got > 0)
                    send(fd, ANSWER, sizeof ANSWER - 1, MSG_NOSIGNAL);
                else if (got == 0 || errno != EAGAIN)
                    close(fd);
                continue;
            }
            while ((s = accept4(listening, 0, 0, SOCK_NONBLOCK)) >= 0) {
                struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = s};
                setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                epoll_ctl(set, EPOLL_CTL_ADD, s, &e);
            }
        }
    }
}
