/* A disk that fails when it is told to: put before libc, it answers EIO to chosen calls and lets all others through.
 *
 * disk_fails(first, count, kinds, inode)   the calls number first .. first + count - 1 of these kinds fail from now on;
 *                                          with an inode, only those on that file are counted
 * disk_calls()                             how many were counted since then
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/types.h>

enum { FSYNC = 1, FDATASYNC = 2, SYNCFS = 4, MSYNC = 8, PWRITE = 16 };

static atomic_long counted;
static atomic_long first = -1, count;
static atomic_int kinds;
static atomic_ulong inode;

void disk_fails(long at, long many, int which, unsigned long file)
{
    first = -1;
    counted = 0, count = many, kinds = which, inode = file;
    first = at;
}

long disk_calls(void) { return counted; }

static int fails(int kind, int fd)
{
    struct stat found;
    long mine;
    if (first < 0 || !(kinds & kind))
        return 0;
    if (inode && (fd < 0 || fstat(fd, &found) || found.st_ino != inode))
        return 0;
    mine = counted++;
    if (mine < first || mine >= first + count)
        return 0;
    errno = EIO;
    return 1;
}

int fsync(int fd)
{
    static int (*real)(int);
    real = real ? real : (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return fails(FSYNC, fd) ? -1 : real(fd);
}

int fdatasync(int fd)
{
    static int (*real)(int);
    real = real ? real : (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return fails(FDATASYNC, fd) ? -1 : real(fd);
}

int syncfs(int fd)
{
    static int (*real)(int);
    real = real ? real : (int (*)(int))dlsym(RTLD_NEXT, "syncfs");
    return fails(SYNCFS, fd) ? -1 : real(fd);
}

int msync(void *start, size_t length, int flags)
{
    static int (*real)(void *, size_t, int);
    real = real ? real : (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "msync");
    return fails(MSYNC, -1) ? -1 : real(start, length, flags);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    real = real ? real : (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    return fails(PWRITE, fd) ? -1 : real(fd, bytes, size, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at)
{
    return pwrite64(fd, bytes, size, at);
}
