#include "plain.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

long stdio_line(int fd, char *line, size_t room)
{
    FILE *file = fdopen(dup(fd), "r");
    if (file == NULL)
        return -1;
    char *got = fgets(line, (int)room, file);
    fclose(file);
    return got ? (long)strlen(line) : -1;
}

long deep_read(int fd, size_t bytes)
{
    char block[4096];
    memset(block, 1, sizeof block);
    /* The block is used after the call, so that it stays on the stack meanwhile. */
    long result = bytes > sizeof block ? deep_read(fd, bytes - sizeof block) : read(fd, block, 1);
    return result + ((volatile char *)block)[100] - 1;
}
