/* A library that the program loads by name, after it has begun. */

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Sends a word and reads it back, in blocking mode. Returns 0 if it is the same. */
int loaded_echo(int fd)
{
    char word[] = "loaded", answer[sizeof word];
    if (send(fd, word, sizeof word, MSG_NOSIGNAL) != sizeof word)
        return -1;
    for (size_t done = 0; done < sizeof word;) {
        ssize_t count = read(fd, answer + done, sizeof word - done);
        if (count <= 0)
            return -1;
        done += count;
    }
    return memcmp(word, answer, sizeof word);
}
