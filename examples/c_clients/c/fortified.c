/* Compiled with -O2 -D_FORTIFY_SOURCE=2, like the packages of most distributions. The compiler cannot
   know the counts, so it calls the forms that check them. */

#include "plain.h"
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

long fortified_read(int fd, size_t count)
{
    char bytes[16];
    return read(fd, bytes, count);
}

long fortified_recv(int fd, size_t count)
{
    char bytes[16];
    return recv(fd, bytes, count, 0);
}

long fortified_recvfrom(int fd, size_t count)
{
    char bytes[16];
    return recvfrom(fd, bytes, count, 0, NULL, NULL);
}

int fortified_poll(int fd, int timeout)
{
    struct pollfd entries[2] = { { fd, POLLIN, 0 }, { -1, 0, 0 } };
    volatile nfds_t count = 2;
    return poll(entries, count, timeout);
}
