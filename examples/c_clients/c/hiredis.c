/* The place is a port. */

#include "clients.h"
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *hiredis_open(const char *place, char *why)
{
    redisContext *context = redisConnect("127.0.0.1", atoi(place));
    if (context == NULL || context->err) {
        snprintf(why, WHY, "connect: %s", context ? context->errstr : "no memory");
        if (context)
            redisFree(context);
        return NULL;
    }
    return context;
}

static int answers(redisContext *context, redisReply *reply, const char *expected, char *why)
{
    int is_right = reply && reply->str && strcmp(reply->str, expected) == 0;
    if (!is_right)
        snprintf(why, WHY, "\"%s\" instead of \"%s\" (%s)", reply && reply->str ? reply->str : "",
                 expected, context->errstr);
    if (reply)
        freeReplyObject(reply);
    return is_right;
}

int hiredis_ask(void *client, long number, char *why)
{
    redisContext *context = client;
    char value[32];
    snprintf(value, sizeof value, "value %ld", number);
    if (!answers(context, redisCommand(context, "SET key:%ld %s", number, value), "OK", why))
        return -1;
    return answers(context, redisCommand(context, "GET key:%ld", number), value, why) ? 0 : -1;
}

void hiredis_close(void *client)
{
    redisFree(client);
}
