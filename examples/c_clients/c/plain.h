/* Small clients that stand for other libraries. Each reads a line that another side sends. */

#include <stddef.h>

/* On stdio: the C library reads, where no hook is reached. Returns the length, or -1. */
long stdio_line(int fd, char *line, size_t room);

/* The same bytes by `read` and `recv` into arrays of a known size, which `_FORTIFY_SOURCE` checks.
   Returns the number of bytes, or -1. */
long fortified_read(int fd, size_t count);
long fortified_recv(int fd, size_t count);
long fortified_recvfrom(int fd, size_t count);
int fortified_poll(int fd, int timeout);

/* Touches so many bytes of the stack, and waits for `fd`. */
long deep_read(int fd, size_t bytes);
