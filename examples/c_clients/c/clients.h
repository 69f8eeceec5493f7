/* Clients of four servers, each in three functions. A failure is described in `why`, which has room
   for WHY bytes. */

#include <stddef.h>

#define WHY 256

#define CLIENT(name)                                                                            \
    /* Connects. Returns NULL if that fails. */                                                 \
    void *name##_open(const char *place, char *why);                                            \
    /* Makes one request, whose answer depends on `number`. Returns 0 if the answer is right. */ \
    int name##_ask(void *client, long number, char *why);                                       \
    void name##_close(void *client);

CLIENT(hiredis)
CLIENT(libpq)
CLIENT(libmariadb)
CLIENT(libcurl)
