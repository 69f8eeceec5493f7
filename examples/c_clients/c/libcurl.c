/* The place is the beginning of an address. A number follows, with which the page answers. For
   https, a space and a file of certificates follow the beginning.

   The library is loaded by name and declared here: its headers conflict with other packages on some
   systems. */

#include "clients.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPT_WRITEDATA 10001
#define OPT_URL 10002
#define OPT_WRITEFUNCTION 20011
#define OPT_CAINFO 10065
#define OPT_NOSIGNAL 99
#define GLOBAL_ALL 3

static int (*global_init)(long flags);
static void *(*easy_init)(void);
static int (*easy_setopt)(void *handle, int option, ...);
static int (*easy_perform)(void *handle);
static void (*easy_cleanup)(void *handle);
static const char *(*easy_strerror)(int code);

/* Called once, before any client is opened. Returns 0 on success. */
int libcurl_load(void)
{
    void *library = dlopen("libcurl.so.4", RTLD_NOW);
    if (library == NULL)
        return -1;
    global_init = dlsym(library, "curl_global_init");
    easy_init = dlsym(library, "curl_easy_init");
    easy_setopt = dlsym(library, "curl_easy_setopt");
    easy_perform = dlsym(library, "curl_easy_perform");
    easy_cleanup = dlsym(library, "curl_easy_cleanup");
    easy_strerror = dlsym(library, "curl_easy_strerror");
    if (!global_init || !easy_init || !easy_setopt || !easy_perform || !easy_cleanup || !easy_strerror)
        return -1;
    return global_init(GLOBAL_ALL);
}

struct client {
    void *handle;
    char *place;
    char *certificates;
    char page[64];
    size_t length;
};

static size_t receive(char *bytes, size_t size, size_t count, void *context)
{
    struct client *client = context;
    size_t all = size * count;
    if (all >= sizeof client->page - client->length)
        return 0;
    memcpy(client->page + client->length, bytes, all);
    client->length += all;
    client->page[client->length] = 0;
    return all;
}

int libcurl_ask(void *context, long number, char *why)
{
    struct client *client = context;
    char address[200], expected[32];
    snprintf(address, sizeof address, "%s%ld", client->place, number);
    snprintf(expected, sizeof expected, "%ld", number);
    client->length = 0;
    client->page[0] = 0;
    easy_setopt(client->handle, OPT_URL, address);
    int code = easy_perform(client->handle);
    if (code == 0 && strcmp(client->page, expected) == 0)
        return 0;
    snprintf(why, WHY, "%s: %s: \"%s\"", address, easy_strerror(code), client->page);
    return -1;
}

void libcurl_close(void *context)
{
    struct client *client = context;
    easy_cleanup(client->handle);
    free(client->place);
    free(client);
}

void *libcurl_open(const char *place, char *why)
{
    struct client *client = calloc(1, sizeof *client);
    if (client == NULL || (client->place = strdup(place)) == NULL) {
        snprintf(why, WHY, "no memory");
        free(client);
        return NULL;
    }
    client->certificates = strchr(client->place, ' ');
    if (client->certificates)
        *client->certificates++ = 0;
    client->handle = easy_init();
    easy_setopt(client->handle, OPT_NOSIGNAL, 1L);
    easy_setopt(client->handle, OPT_WRITEFUNCTION, receive);
    easy_setopt(client->handle, OPT_WRITEDATA, (void *)client);
    if (client->certificates)
        easy_setopt(client->handle, OPT_CAINFO, client->certificates);
    /* The connection is opened by the first request. */
    if (libcurl_ask(client, 0, why) != 0) {
        libcurl_close(client);
        return NULL;
    }
    return client;
}
