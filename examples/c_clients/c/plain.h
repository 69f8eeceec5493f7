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

/* Waits for `fd` inside a recursive lock. Returns how often the lock is held then. */
int recursive_lock(int fd);

/* Notes `number` in a thread-local, waits for `fd`, and returns what is noted. */
int thread_state(int fd, int number);

/* Reads a byte, and returns the library's own buffer as a string. */
const char *static_buffer(int fd);

/* OpenSSL, which is loaded by name first. A call fails, and leaves an error in the queue of the
   thread. `openssl_error` waits for `fd` then, and returns 1 if the error is still there, or 0. */
int openssl_load(void);
int openssl_error(int fd);
void openssl_clear(void);
