/* Preloaded into a program: makes what it writes below a folder fail, as a disk or a kernel does.
 *
 * FAULT_FOLDER  files below it are meant, no others
 * FAULT_AT      the operation, counted from 1, that goes wrong
 * FAULT_HOW     full (ENOSPC), io (EIO), torn (half of it, then ENOSPC), kill (the process ends before it),
 *               half (half of it, then the process ends)
 * FAULT_LASTS   every later operation goes wrong too
 * FAULT_WHILE   as long as this file is there, every operation gives ENOSPC
 * FAULT_HIT     this file is made when something went wrong
 *
 * or nothing goes wrong, and what was done is noted, for whoever works out what a disk would have of it that lost power:
 *
 * FAULT_LOG     every operation below FAULT_FOLDER, and all that is written on stdout, goes to the end of this file
 *               (struct noted, its bytes, then the names that are in the folder after it)
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* W: bytes were written at an offset; L: it has that length now; S: it was synced; T: bytes were told on stdout. */
struct noted {
    uint64_t what, inode, offset, length;
};

static pthread_mutex_t noting = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;

static void put(const void *bytes, size_t length) {
    while (length > 0) {
        ssize_t done = syscall(SYS_write, log_fd, bytes, length);
        if (done <= 0) syscall(SYS_exit_group, 99);
        bytes = (const char *)bytes + done;
        length -= (size_t)done;
    }
}

/* Each name behind its inode and its length; an inode of 0 ends them. */
static void put_names(void) {
    DIR *folder = opendir(getenv("FAULT_FOLDER"));
    uint64_t of[2] = {0, 0};
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        struct stat about;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (fstatat(dirfd(folder), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
        of[0] = about.st_ino;
        of[1] = strlen(entry->d_name);
        put(of, sizeof of);
        put(entry->d_name, of[1]);
    }
    if (folder) closedir(folder);
    of[0] = of[1] = 0;
    put(of, sizeof of);
}

/* Before an operation that is noted: nothing else happens until it is. 0: it is not. */
static int begin(int fd) {
    if (!getenv("FAULT_LOG") || !(fd == 1 || below(fd))) return 0;
    pthread_mutex_lock(&noting);
    if (log_fd < 0) log_fd = (int)syscall(SYS_openat, AT_FDCWD, getenv("FAULT_LOG"), O_CREAT | O_WRONLY | O_APPEND, 0600);
    return 1;
}

static void end(char what, int fd, off64_t offset, const void *bytes, ssize_t length) {
    int error = errno;
    struct stat about;
    if (length >= 0 && fstat(fd, &about) == 0) {
        struct noted noted = {(uint64_t)what, about.st_ino, (uint64_t)offset, bytes ? (uint64_t)length : 0};
        put(&noted, sizeof noted);
        put(bytes, noted.length);
        put_names();
    }
    pthread_mutex_unlock(&noting);
    errno = error;
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
    default: break;
    }
    if (!begin(fd)) return next(fd, bytes, length);
    struct stat about;
    int appends = fcntl(fd, F_GETFL) & O_APPEND && fstat(fd, &about) == 0;
    off64_t offset = appends ? about.st_size : lseek64(fd, 0, SEEK_CUR);
    ssize_t done = next(fd, bytes, length);
    end(fd == 1 ? 'T' : 'W', fd, offset, bytes, done);
    return done;
}

typedef ssize_t (*pwrite_type)(int, const void *, size_t, off64_t);
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    NEXT(pwrite_type, "pwrite64");
    switch (wrong(fd)) {
    case 1: return -1;
    case 2: (void)!next(fd, bytes, length / 2, offset); after_half(); return -1;
    default: break;
    }
    if (!begin(fd)) return next(fd, bytes, length, offset);
    ssize_t done = next(fd, bytes, length, offset);
    end('W', fd, offset, bytes, done);
    return done;
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    return pwrite64(fd, bytes, length, offset);
}

typedef int (*fd_type)(int);
static int synced(int fd, fd_type next) {
    if (wrong(fd)) return after_half(), -1;
    if (!begin(fd)) return next(fd);
    int done = next(fd);
    end('S', fd, 0, NULL, done);
    return done;
}
int fsync(int fd) {
    NEXT(fd_type, "fsync");
    return synced(fd, next);
}
int fdatasync(int fd) {
    NEXT(fd_type, "fdatasync");
    return synced(fd, next);
}

typedef int (*truncate_type)(int, off64_t);
int ftruncate64(int fd, off64_t length) {
    NEXT(truncate_type, "ftruncate64");
    if (wrong(fd)) return after_half(), -1;
    if (!begin(fd)) return next(fd, length);
    int done = next(fd, length);
    end('L', fd, length, NULL, done);
    return done;
}
int ftruncate(int fd, off_t length) {
    return ftruncate64(fd, length);
}

typedef int (*fchmod_type)(int, mode_t);
int fchmod(int fd, mode_t mode) {
    NEXT(fchmod_type, "fchmod");
    return wrong(fd) ? (after_half(), -1) : next(fd, mode);
}
