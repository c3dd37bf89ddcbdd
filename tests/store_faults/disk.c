/*
 * A library for LD_PRELOAD. It records the file operations of a program, and makes selected operations fail or wait.
 *
 * DISK_PREFIX   the path prefix of the files to record. A directory whose path has the prefix is recorded when it is synced.
 * DISK_JOURNAL  the file that records are appended to, in the order of their effect. A record is the line
 *                   OP NAME AT SIZE TIME
 *               and SIZE bytes. NAME is the file name, TIME is CLOCK_MONOTONIC in nanoseconds, OP is one of
 *                   c file created               u file unlinked               r file renamed (bytes: the new name)
 *                   w bytes written at AT        t file truncated to AT bytes
 *                   S sync started               s sync succeeded              F injected failure (AT: the errno)
 * DISK_CONTROL  a file that is read at each call. If it does not exist, no fault is injected. It contains the line
 *                   GENERATION FIRST LAST ERRNO KINDS MILLISECONDS
 *               Calls of KINDS (o open, r read, w write, t truncate, s sync, u unlink and rename) are counted from 1
 *               while GENERATION is unchanged. Calls from FIRST to LAST wait, and then fail unless ERRNO is 0. A failed
 *               write leaves half of its bytes, because POSIX does not promise that it leaves none. With the kind q,
 *               FIRST is a quota: a write that would make the files of the directory larger in total fails.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const char *prefix, *control;
static int journal = -1;
/* Makes a call and its record atomic. A sync needs no lock: the writes that it covers were recorded before it. */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("DISK_JOURNAL");
    prefix = getenv("DISK_PREFIX");
    control = getenv("DISK_CONTROL");
    if (path) journal = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

/* The name of a recorded file; NULL for all other files. */
static const char *ours(const char *path) {
    if (!prefix || strncmp(path, prefix, strlen(prefix)) != 0) return NULL;
    return strrchr(path, '/') + 1;
}

static const char *named(int fd, char room[PATH_MAX]) {
    char link[32];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, room, PATH_MAX - 1);
    errno = before;
    if (length <= 0) return NULL;
    room[length] = 0;
    return strchr(room, ' ') ? NULL : ours(room); /* a deleted file: "... (deleted)" */
}

static void record(char op, const char *name, long long at, const void *bytes, size_t size) {
    struct timespec now;
    char head[NAME_MAX + 96];
    if (journal < 0) return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int length = snprintf(head, sizeof head, "%c %s %lld %zu %lld\n", op, name, at, size,
                          now.tv_sec * 1000000000LL + now.tv_nsec);
    struct iovec parts[2] = {{head, length}, {(void *)bytes, size}};
    if (syscall(SYS_writev, journal, parts, 2) != (ssize_t)(length + size)) abort();
}

static void record_alone(char op, const char *name, long long at) {
    pthread_mutex_lock(&order);
    record(op, name, at, "", 0);
    pthread_mutex_unlock(&order);
}

/* Waits as the control file requests. Returns the errno to inject, or 0. */
static int fault(char kind, const char *name) {
    static unsigned long seen, count;
    unsigned long generation, first, last;
    unsigned wait;
    int error, fd = control ? syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC) : -1;
    char kinds[16], line[128] = "";
    if (fd < 0) return 0;
    ssize_t length = syscall(SYS_read, fd, line, sizeof line - 1);
    syscall(SYS_close, fd);
    if (length <= 0 || sscanf(line, "%lu %lu %lu %d %15s %u", &generation, &first, &last, &error, kinds, &wait) != 6) abort();
    if (!strchr(kinds, kind)) return 0;
    pthread_mutex_lock(&order);
    if (generation != seen) count = 0;
    seen = generation;
    count += 1;
    int hit = count >= first && count <= last;
    if (hit && error) record('F', name, error, "", 0);
    pthread_mutex_unlock(&order);
    if (!hit) return 0;
    struct timespec time = {wait / 1000, wait % 1000 * 1000000L};
    nanosleep(&time, NULL);
    return error;
}

static int failed(int error) {
    errno = error;
    return -1;
}

/*
 * Returns the errno to inject if a write would exceed the quota of the directory, or 0. With the kind q, FIRST of the control
 * file is the quota in bytes.
 */
static int over_quota(int fd, const char *name, size_t size, off_t at, int placed) {
    unsigned long generation, most, last;
    unsigned wait;
    int error, control_fd = control ? syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC) : -1;
    char kinds[16], line[128] = "", folder[PATH_MAX];
    if (control_fd < 0) return 0;
    ssize_t length = syscall(SYS_read, control_fd, line, sizeof line - 1);
    syscall(SYS_close, control_fd);
    if (length <= 0 || sscanf(line, "%lu %lu %lu %d %15s %u", &generation, &most, &last, &error, kinds, &wait) != 6) abort();
    if (!strchr(kinds, 'q')) return 0;
    struct stat file;
    off_t end = (placed ? at : lseek(fd, 0, SEEK_CUR)) + (off_t)size;
    if (fstat(fd, &file) != 0 || end <= file.st_size) return 0;
    unsigned long total = end - file.st_size;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(prefix, '/') - prefix), prefix);
    DIR *files = opendir(folder);
    if (!files) abort();
    for (struct dirent *entry; (entry = readdir(files));)
        if (fstatat(dirfd(files), entry->d_name, &file, 0) == 0 && S_ISREG(file.st_mode)) total += file.st_size;
    closedir(files);
    if (total <= most) return 0;
    record_alone('F', name, error);
    return error;
}

static ssize_t put(int fd, const void *bytes, size_t size, off_t at, int placed) {
    char room[PATH_MAX];
    const char *name = named(fd, room);
    int error = name ? fault('w', name) : 0;
    if (name && !error) error = over_quota(fd, name, size, at, placed);
    size_t part = error ? size / 2 : size;
    if (name) pthread_mutex_lock(&order);
    ssize_t done = placed ? syscall(SYS_pwrite64, fd, bytes, part, at) : syscall(SYS_write, fd, bytes, part);
    int result = errno;
    if (name && done > 0) record('w', name, placed ? at : lseek(fd, 0, SEEK_CUR) - done, bytes, done);
    if (name) pthread_mutex_unlock(&order);
    errno = error ? error : result;
    return error ? -1 : done;
}

ssize_t write(int fd, const void *bytes, size_t size) { return put(fd, bytes, size, 0, 0); }
ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) { return put(fd, bytes, size, at, 1); }
ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) { return put(fd, bytes, size, at, 1); }

static int unreadable(int fd) {
    char room[PATH_MAX];
    const char *name = control ? named(fd, room) : NULL;
    return name ? fault('r', name) : 0;
}

ssize_t read(int fd, void *bytes, size_t size) {
    int error = unreadable(fd);
    return error ? failed(error) : syscall(SYS_read, fd, bytes, size);
}

ssize_t pread64(int fd, void *bytes, size_t size, off64_t at) {
    int error = unreadable(fd);
    return error ? failed(error) : syscall(SYS_pread64, fd, bytes, size, at);
}

static int cut(int fd, off_t size) {
    char room[PATH_MAX];
    const char *name = named(fd, room);
    int error = name ? fault('t', name) : 0;
    if (error) return failed(error);
    if (name) pthread_mutex_lock(&order);
    int result = syscall(SYS_ftruncate, fd, size);
    if (name && result == 0) record('t', name, size, "", 0);
    if (name) pthread_mutex_unlock(&order);
    return result;
}

int ftruncate(int fd, off_t size) { return cut(fd, size); }
int ftruncate64(int fd, off64_t size) { return cut(fd, size); }

static int sync_one(int fd, long call) {
    char room[PATH_MAX];
    const char *name = named(fd, room);
    if (!name) return syscall(call, fd);
    record_alone('S', name, 0);
    int error = fault('s', name);
    int result = error ? failed(error) : syscall(call, fd);
    if (result == 0) record_alone('s', name, 0);
    return result;
}

int fsync(int fd) { return sync_one(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_one(fd, SYS_fdatasync); }

/* A rename, or an unlink if `to` is NULL. */
static int change(const char *from, const char *to) {
    const char *name = ours(from);
    int error = name ? fault('u', name) : 0;
    if (error) return failed(error);
    if (name) pthread_mutex_lock(&order);
    int result = to ? syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0) : syscall(SYS_unlinkat, AT_FDCWD, from, 0);
    const char *new = name && to ? strrchr(to, '/') + 1 : "";
    if (name && result == 0) record(to ? 'r' : 'u', name, 0, new, strlen(new));
    if (name) pthread_mutex_unlock(&order);
    return result;
}

int unlink(const char *path) { return change(path, NULL); }
int rename(const char *from, const char *to) { return change(from, to); }

static int open_one(const char *path, int flags, mode_t mode) {
    const char *name = ours(path);
    int error = name ? fault('o', name) : 0;
    if (error) return failed(error);
    if (name) pthread_mutex_lock(&order);
    int made = name && flags & O_CREAT && access(path, F_OK) != 0;
    int fd = syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (made && fd >= 0) record('c', name, 0, "", 0);
    if (name && flags & O_TRUNC && fd >= 0) record('t', name, 0, "", 0);
    if (name) pthread_mutex_unlock(&order);
    return fd;
}

#define OPEN(function)                                     \
    int function(const char *path, int flags, ...) {       \
        va_list rest;                                      \
        va_start(rest, flags);                             \
        mode_t mode = va_arg(rest, mode_t);                \
        va_end(rest);                                      \
        return open_one(path, flags, mode);                \
    }

OPEN(open)
OPEN(open64)
