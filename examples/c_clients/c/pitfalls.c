/* Libraries that do not expect other coroutines on their thread during a wait. */

#define _GNU_SOURCE
#include "plain.h"
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int inside;

int recursive_lock(int fd)
{
    char byte;
    pthread_mutex_lock(&lock);
    int count = ++inside;
    ssize_t length = read(fd, &byte, 1);
    --inside;
    pthread_mutex_unlock(&lock);
    return length == 1 ? count : -1;
}

static __thread int current;

int thread_state(int fd, int number)
{
    char byte;
    current = number;
    return read(fd, &byte, 1) == 1 ? current : -1;
}

static char name[2];

const char *static_buffer(int fd)
{
    return read(fd, name, 1) == 1 ? name : NULL;
}

static void (*clear_error)(void);
static unsigned long (*peek_error)(void);
static void *(*new_file)(const char *name, const char *mode);

int openssl_load(void)
{
    void *library = dlopen("libcrypto.so.3", RTLD_NOW);
    if (library == NULL)
        return -1;
    clear_error = dlsym(library, "ERR_clear_error");
    peek_error = dlsym(library, "ERR_peek_error");
    new_file = dlsym(library, "BIO_new_file");
    return clear_error && peek_error && new_file ? 0 : -1;
}

int openssl_error(int fd)
{
    char byte;
    if (new_file("/nowhere/at/all", "r") != NULL || peek_error() == 0)
        return -1;
    return read(fd, &byte, 1) == 1 ? peek_error() != 0 : -1;
}

void openssl_clear(void)
{
    clear_error();
}
