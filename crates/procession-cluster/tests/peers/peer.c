/* Erlang's own library for C as a peer of `echo.lua`: calls in both directions. */
#include <ei.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ei_cnode own;
static int connection;

static void fail(const char *what) {
    fprintf(stderr, "peer.c: %s\n", what);
    exit(1);
}

/* Returns the text of the term at an index of a buffer. */
static char *text(const char *buffer, int *index) {
    char *found = NULL;
    if (ei_s_print_term(&found, buffer, index) < 0) fail("a term cannot be read");
    return found;
}

/* Answers a call to `cserver`: {ping, N} with {pong, N}. */
static void serve(ei_x_buff *message) {
    int index = 0, version, arity;
    char word[MAXATOMLEN];
    erlang_pid from;
    erlang_ref tag;
    long number;
    ei_decode_version(message->buff, &index, &version);
    if (ei_decode_tuple_header(message->buff, &index, &arity) || arity != 3 ||
        ei_decode_atom(message->buff, &index, word) || strcmp(word, "$gen_call") ||
        ei_decode_tuple_header(message->buff, &index, &arity) || arity != 2 ||
        ei_decode_pid(message->buff, &index, &from) || ei_decode_ref(message->buff, &index, &tag) ||
        ei_decode_tuple_header(message->buff, &index, &arity) || arity != 2 ||
        ei_decode_atom(message->buff, &index, word) || strcmp(word, "ping") ||
        ei_decode_long(message->buff, &index, &number))
        fail("the call is not {ping, N}");
    ei_x_buff reply;
    ei_x_new_with_version(&reply);
    ei_x_encode_tuple_header(&reply, 2);
    ei_x_encode_ref(&reply, &tag);
    ei_x_encode_tuple_header(&reply, 2);
    ei_x_encode_atom(&reply, "pong");
    ei_x_encode_long(&reply, number);
    if (ei_send(connection, &from, reply.buff, reply.index) < 0) fail("the reply is not sent");
    ei_x_free(&reply);
}

/* Receives messages, and serves calls, until one comes to this process. */
static void receive(ei_x_buff *message) {
    erlang_msg about;
    while (1) {
        int got = ei_xreceive_msg_tmo(connection, &about, message, 10000);
        if (got == ERL_TICK) continue;
        if (got != ERL_MSG) fail("nothing comes");
        if (about.msgtype == ERL_REG_SEND && !strcmp(about.toname, "cserver"))
            serve(message);
        else if (about.msgtype == ERL_SEND)
            return;
    }
}

/* Calls `echo` with a term, and compares the reply with the expected text. */
static void call(ei_x_buff *term, const char *expected) {
    ei_x_buff message;
    erlang_ref tag, answered;
    int index = 0, version, arity;
    ei_make_ref(&own, &tag);
    ei_x_new_with_version(&message);
    ei_x_encode_tuple_header(&message, 3);
    ei_x_encode_atom(&message, "$gen_call");
    ei_x_encode_tuple_header(&message, 2);
    ei_x_encode_pid(&message, ei_self(&own));
    ei_x_encode_ref(&message, &tag);
    ei_x_append(&message, term);
    if (ei_reg_send(&own, connection, "echo", message.buff, message.index) < 0) fail("not sent");
    ei_x_free(&message);
    ei_x_new(&message);
    receive(&message);
    ei_decode_version(message.buff, &index, &version);
    if (ei_decode_tuple_header(message.buff, &index, &arity) || arity != 2 ||
        ei_decode_ref(message.buff, &index, &answered) || ei_cmp_refs(&tag, &answered))
        fail("it is not a reply to this call");
    char *found = text(message.buff, &index);
    if (strcmp(found, expected)) {
        fprintf(stderr, "peer.c: %s came, not %s\n", found, expected);
        exit(1);
    }
    free(found);
    ei_x_free(&message);
}

/* Calls `echo` with what a format describes. */
static void echo(const char *format, const char *expected) {
    ei_x_buff term;
    ei_x_new(&term);
    if (ei_x_format_wo_ver(&term, format)) fail("a format is wrong");
    call(&term, expected);
    ei_x_free(&term);
}

int main(int count, char **words) {
    if (count != 3) fail("usage: peer NODE COOKIE");
    struct in_addr address;
    inet_aton("127.0.0.1", &address);
    if (ei_init() || ei_connect_xinit(&own, "127.0.0.1", "cpeer", "cpeer@127.0.0.1", &address, words[2], 7))
        fail("no node");
    connection = ei_connect(&own, words[1]);
    if (connection < 0) fail("not connected");
    echo("[1, -5, 1000000, 1.5, ok, [], [a, [b]]]", "[1, -5, 1000000, 1.500000, ok, [], [a, [b]]]");
    echo("{ok, {1, 2}, {}}", "{ok, {1, 2}, {}}");
    echo("'an atom'", "'an atom'");
    /* A string comes back as the list of integers that it is. */
    echo("\"text\"", "[116, 101, 120, 116]");

    ei_x_buff term;
    /* A binary of a megabyte, which comes in fragments if the library can read them. */
    size_t length = 1 << 20;
    char *bytes = calloc(length, 1);
    ei_x_new(&term);
    ei_x_encode_binary(&term, bytes, length);
    int index = 0;
    char *expected = text(term.buff, &index);
    call(&term, expected);
    free(expected);
    free(bytes);
    ei_x_free(&term);

    echo("{back, cserver, 'cpeer@127.0.0.1', {ping, 7}}", "{ok, {pong, 7}}");
    puts("ei: every reply was right");
    return 0;
}
