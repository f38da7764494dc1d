/* The same by io_uring: multishot accept and recv, a ring of provided buffers, registered files, sends
   submitted together with the next wait. Usage: uring PORT (on 127.0.0.1). */
#define _GNU_SOURCE
#include <liburing.h>
#include <stdlib.h>
#include "answer.h"

enum { ACCEPT = 1, RECEIVE, SEND };
enum { BUFFERS = 1024, BUFFER_BYTES = 2048, FILES = 8192, OUT_OF_BUFFERS = -105 };

static struct io_uring ring;

static struct io_uring_sqe *entry(unsigned long fd, int kind)
{
    struct io_uring_sqe *e = io_uring_get_sqe(&ring);
    if (!e) {
        io_uring_submit(&ring);
        e = io_uring_get_sqe(&ring);
    }
    e->user_data = fd << 2 | kind;
    return e;
}

static void receive(int fd)
{
    struct io_uring_sqe *e = entry(fd, RECEIVE);
    unsigned long data = e->user_data;
    io_uring_prep_recv_multishot(e, fd, 0, 0, 0);
    e->flags |= IOSQE_BUFFER_SELECT | IOSQE_FIXED_FILE;
    e->buf_group = 0;
    e->user_data = data;
}

int main(int argc, char **argv)
{
    int listening = listen_on(argc > 1 ? atoi(argv[1]) : 0, 0);
    struct io_uring_params params = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE,
        .cq_entries = FILES};
    struct io_uring_buf_ring *buffers;
    char *memory = malloc((size_t)BUFFERS * BUFFER_BYTES);

    if (io_uring_queue_init_params(4096, &ring, &params) || io_uring_register_files_sparse(&ring, FILES)
        || posix_memalign((void **)&buffers, 4096, BUFFERS * sizeof(struct io_uring_buf)))
        return 1;
    io_uring_register_ring_fd(&ring);
    struct io_uring_buf_reg reg = {.ring_addr = (unsigned long)buffers, .ring_entries = BUFFERS};
    if (io_uring_register_buf_ring(&ring, &reg, 0))
        return 1;
    io_uring_buf_ring_init(buffers);
    for (int i = 0; i < BUFFERS; i++)
        io_uring_buf_ring_add(buffers, memory + i * BUFFER_BYTES, BUFFER_BYTES, i, BUFFERS - 1, i);
    io_uring_buf_ring_advance(buffers, BUFFERS);

    struct io_uring_sqe *first = entry(0, ACCEPT);
    io_uring_prep_multishot_accept_direct(first, listening, 0, 0, 0);
    first->user_data = ACCEPT;
    for (;;) {
        struct io_uring_cqe *c;
        unsigned head, seen = 0, given = 0;

        io_uring_submit_and_wait(&ring, 1);
        io_uring_for_each_cqe(&ring, head, c) {
            int kind = c->user_data & 3, fd = c->user_data >> 2;
            struct io_uring_sqe *e;

            seen++;
            if (kind == ACCEPT && c->res >= 0)
                receive(c->res);
            if (kind != RECEIVE)
                continue;
            if (c->res > 0) {
                int id = c->flags >> IORING_CQE_BUFFER_SHIFT;
                io_uring_buf_ring_add(buffers, memory + id * BUFFER_BYTES, BUFFER_BYTES, id,
                                      BUFFERS - 1, given++);
                e = entry(fd, SEND);
                io_uring_prep_send(e, fd, ANSWER, sizeof ANSWER - 1, MSG_NOSIGNAL);
                e->flags |= IOSQE_CQE_SKIP_SUCCESS | IOSQE_FIXED_FILE;
                e->user_data = SEND;
            } else if (c->res != OUT_OF_BUFFERS) {
                e = entry(fd, SEND);
                io_uring_prep_close_direct(e, fd);
                e->flags |= IOSQE_CQE_SKIP_SUCCESS;
                e->user_data = SEND;
                continue;
            }
            if (!(c->flags & IORING_CQE_F_MORE))
                receive(fd);
        }
        if (given)
            io_uring_buf_ring_advance(buffers, given);
        io_uring_cq_advance(&ring, seen);
    }
}
