/* The place is a port. */

#include "clients.h"
#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>

void *libmariadb_open(const char *place, char *why)
{
    MYSQL *connection = mysql_init(NULL);
    if (connection == NULL) {
        snprintf(why, WHY, "no memory");
        return NULL;
    }
    if (!mysql_real_connect(connection, "127.0.0.1", "root", "", NULL, atoi(place), NULL, 0)) {
        snprintf(why, WHY, "connect: %s", mysql_error(connection));
        mysql_close(connection);
        return NULL;
    }
    return connection;
}

int libmariadb_ask(void *client, long number, char *why)
{
    char query[64];
    snprintf(query, sizeof query, "SELECT %ld + 1", number);
    MYSQL_RES *result = mysql_query(client, query) ? NULL : mysql_store_result(client);
    MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;
    int is_right = row && row[0] && atol(row[0]) == number + 1;
    if (!is_right)
        snprintf(why, WHY, "%s: %s", query, mysql_error(client));
    if (result)
        mysql_free_result(result);
    return is_right ? 0 : -1;
}

void libmariadb_close(void *client)
{
    mysql_close(client);
}
