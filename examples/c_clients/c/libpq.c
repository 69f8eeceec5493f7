/* The place is a connection string. */

#include "clients.h"
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>

void *libpq_open(const char *place, char *why)
{
    PGconn *connection = PQconnectdb(place);
    if (PQstatus(connection) != CONNECTION_OK) {
        snprintf(why, WHY, "connect: %s", PQerrorMessage(connection));
        PQfinish(connection);
        return NULL;
    }
    return connection;
}

int libpq_ask(void *client, long number, char *why)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", number);
    const char *values[] = { text };
    PGresult *result = PQexecParams(client, "SELECT $1::bigint + 1", 1, NULL, values, NULL, NULL, 0);
    int is_right = PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1 &&
                   atol(PQgetvalue(result, 0, 0)) == number + 1;
    if (!is_right)
        snprintf(why, WHY, "query %ld: %s", number, PQerrorMessage(client));
    PQclear(result);
    return is_right ? 0 : -1;
}

void libpq_close(void *client)
{
    PQfinish(client);
}
