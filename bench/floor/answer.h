/* What both servers of the floor have: the answer, and a listening socket. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static const char ANSWER[] =
    "HTTP/1.1 200 OK\r\nServer: floor\r\nDate: Sun, 22 Nov 2026 16:00:00 GMT\r\n"
    "Content-Type: text/plain\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nOK\n";

static int listen_on(int port, int flags)
{
    int s = socket(AF_INET, SOCK_STREAM | flags, 0), on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (bind(s, (struct sockaddr *)&at, sizeof at) || listen(s, 511)) {
        perror("listen");
        exit(1);
    }
    return s;
}
