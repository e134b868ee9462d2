/* Records, in the file WRITES_LOG, all writes to files below WRITES_BELOW and to standard output, and all syncs, in their
 * order: preloaded by test_power_cut.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ssize_t (*real_write)(int, const void *, size_t);

/* What is said of each call: a kind, the length of the path, where, how much; then the path and the bytes. */
struct __attribute__((packed)) head { char kind; uint16_t path; uint64_t offset; uint32_t size; };

static void say_all(int out, const void *data, size_t size) {
    const char *rest = data;
    while (size > 0) {
        ssize_t done = real_write(out, rest, size);
        if (done <= 0) abort();
        rest += done;
        size -= (size_t)done;
    }
}

static void say(char kind, int file, uint64_t offset, const void *data, size_t size) {
    char link[64], path[4096];
    const char *log = getenv("WRITES_LOG"), *below = getenv("WRITES_BELOW");
    if (!log || !below) return;
    if (!real_write) real_write = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return;
    if (file == 1) {
        kind = 'C';
        length = 0;
    } else if (strncmp(path, below, strlen(below)) != 0) {
        return;
    } else if (kind == 'W' && (fcntl(file, F_GETFL) & O_DSYNC)) {
        kind = 'D';
    }
    struct head head = {kind, (uint16_t)length, offset, (uint32_t)size};
    pthread_mutex_lock(&lock);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (out < 0) abort();
    say_all(out, &head, sizeof head);
    say_all(out, path, (size_t)length);
    if (data) say_all(out, data, size);
    close(out);
    pthread_mutex_unlock(&lock);
}

#define REAL(result, name, ...) static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static void say_vector(int file, const struct iovec *parts, int count, uint64_t offset, ssize_t done) {
    for (int i = 0; i < count && done > 0; i++) {
        size_t size = (size_t)done < parts[i].iov_len ? (size_t)done : parts[i].iov_len;
        say('W', file, offset, parts[i].iov_base, size);
        offset += size;
        done -= (ssize_t)size;
    }
}

ssize_t write(int file, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    off_t offset = lseek(file, 0, SEEK_CUR);
    ssize_t done = real(file, data, size);
    if (done > 0) say('W', file, (uint64_t)offset, data, (size_t)done);
    return done;
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    off_t offset = lseek(file, 0, SEEK_CUR);
    ssize_t done = real(file, parts, count);
    say_vector(file, parts, count, (uint64_t)offset, done);
    return done;
}

#define PWRITE(name) ssize_t name(int file, const void *data, size_t size, off_t offset) { \
    REAL(ssize_t, #name, int, const void *, size_t, off_t); \
    ssize_t done = real(file, data, size, offset); \
    if (done > 0) say('W', file, (uint64_t)offset, data, (size_t)done); \
    return done; }
PWRITE(pwrite)
PWRITE(pwrite64)

#define PWRITEV(name) ssize_t name(int file, const struct iovec *parts, int count, off_t offset) { \
    REAL(ssize_t, #name, int, const struct iovec *, int, off_t); \
    ssize_t done = real(file, parts, count, offset); \
    say_vector(file, parts, count, (uint64_t)offset, done); \
    return done; }
PWRITEV(pwritev)
PWRITEV(pwritev64)

#define PWRITEV2(name) ssize_t name(int file, const struct iovec *parts, int count, off_t offset, int flags) { \
    REAL(ssize_t, #name, int, const struct iovec *, int, off_t, int); \
    ssize_t done = real(file, parts, count, offset, flags); \
    say_vector(file, parts, count, (uint64_t)offset, done); \
    return done; }
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

#define LENGTHEN(name) int name(int file, off_t begin, off_t size) { \
    REAL(int, #name, int, off_t, off_t); \
    int result = real(file, begin, size); \
    if (result == 0) say('L', file, (uint64_t)(begin + size), NULL, 0); \
    return result; }
LENGTHEN(posix_fallocate)
LENGTHEN(posix_fallocate64)

#define CUT(name) int name(int file, off_t size) { \
    REAL(int, #name, int, off_t); \
    int result = real(file, size); \
    if (result == 0) say('T', file, (uint64_t)size, NULL, 0); \
    return result; }
CUT(ftruncate)
CUT(ftruncate64)

#define SYNC(name) int name(int file) { \
    REAL(int, #name, int); \
    int result = real(file); \
    if (result == 0) say('S', file, 0, NULL, 0); \
    return result; }
SYNC(fsync)
SYNC(fdatasync)
