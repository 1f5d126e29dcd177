/* Preloaded into a program: makes what it writes below a folder fail, as a disk or a kernel does.
 *
 * FAULT_FOLDER  files below it are meant, no others
 * FAULT_AT      the operation, counted from 1, that goes wrong
 * FAULT_HOW     full (ENOSPC), io (EIO), torn (half of it, then ENOSPC), kill (the process ends before it),
 *               half (half of it, then the process ends)
 * FAULT_LASTS   every later operation goes wrong too
 * FAULT_WHILE   as long as this file is there, every operation gives ENOSPC
 * FAULT_HIT     this file is made when something went wrong
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long count;

static int below(int fd) {
    const char *folder = getenv("FAULT_FOLDER");
    char link[64], path[PATH_MAX];
    if (!folder) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, folder, strlen(folder)) == 0;
}

/* 0: nothing goes wrong; 1: nothing is written; 2: half is, first. */
static int wrong(int fd) {
    if (!below(fd)) return 0;
    const char *toggle = getenv("FAULT_WHILE"), *at = getenv("FAULT_AT"), *how = getenv("FAULT_HOW");
    if (toggle && syscall(SYS_access, toggle, F_OK) == 0) {
        errno = ENOSPC;
        return 1;
    }
    if (!at || !how) return 0;
    long number = atomic_fetch_add(&count, 1) + 1, mark = atol(at);
    if (number != mark && !(getenv("FAULT_LASTS") && number > mark)) return 0;
    const char *hit = getenv("FAULT_HIT");
    if (hit) {
        int made = (int)syscall(SYS_openat, AT_FDCWD, hit, O_CREAT | O_WRONLY, 0600);
        if (made >= 0) syscall(SYS_close, made);
    }
    if (strcmp(how, "kill") == 0) syscall(SYS_exit_group, 137);
    errno = strcmp(how, "io") == 0 ? EIO : ENOSPC;
    return strcmp(how, "torn") == 0 || strcmp(how, "half") == 0 ? 2 : 1;
}

static void after_half(void) {
    if (strcmp(getenv("FAULT_HOW"), "half") == 0) syscall(SYS_exit_group, 137);
    errno = ENOSPC;
}

#define NEXT(type, name) \
    static type next; \
    if (!next) next = (type)dlsym(RTLD_NEXT, name)

typedef ssize_t (*write_type)(int, const void *, size_t);
ssize_t write(int fd, const void *bytes, size_t length) {
    NEXT(write_type, "write");
    switch (wrong(fd)) {
    case 1: return -1;
    case 2: (void)!next(fd, bytes, length / 2); after_half(); return -1;
    default: return next(fd, bytes, length);
    }
}

typedef ssize_t (*pwrite_type)(int, const void *, size_t, off64_t);
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    NEXT(pwrite_type, "pwrite64");
    switch (wrong(fd)) {
    case 1: return -1;
    case 2: (void)!next(fd, bytes, length / 2, offset); after_half(); return -1;
    default: return next(fd, bytes, length, offset);
    }
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    return pwrite64(fd, bytes, length, offset);
}

typedef int (*fd_type)(int);
int fsync(int fd) {
    NEXT(fd_type, "fsync");
    return wrong(fd) ? (after_half(), -1) : next(fd);
}
int fdatasync(int fd) {
    NEXT(fd_type, "fdatasync");
    return wrong(fd) ? (after_half(), -1) : next(fd);
}

typedef int (*truncate_type)(int, off64_t);
int ftruncate64(int fd, off64_t length) {
    NEXT(truncate_type, "ftruncate64");
    return wrong(fd) ? (after_half(), -1) : next(fd, length);
}
int ftruncate(int fd, off_t length) {
    return ftruncate64(fd, length);
}

typedef int (*fchmod_type)(int, mode_t);
int fchmod(int fd, mode_t mode) {
    NEXT(fchmod_type, "fchmod");
    return wrong(fd) ? (after_half(), -1) : next(fd, mode);
}
