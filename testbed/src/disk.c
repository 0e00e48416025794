// A disk on which there is no room left while the number in the file POLYLOCK_DISK is not 0: no file can become larger.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static const volatile int64_t *full;

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("POLYLOCK_DISK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) full = page;
    close(file);
}

// What is there already may be overwritten. Sockets, pipes and terminals go on.
static int lacks_room(int file, off_t end) {
    struct stat about;
    return full && *full && fstat(file, &about) == 0 && S_ISREG(about.st_mode) && end > about.st_size;
}

ssize_t write(int file, const void *bytes, size_t size) {
    if (full && *full) {
        int appends = fcntl(file, F_GETFL) & O_APPEND;
        off_t at = lseek(file, 0, appends ? SEEK_END : SEEK_CUR);
        if (at >= 0 && lacks_room(file, at + (off_t)size)) {
            errno = ENOSPC;
            return -1;
        }
    }
    return syscall(SYS_write, file, bytes, size);
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t at) {
    if (lacks_room(file, at + (off_t)size)) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_pwrite64, file, bytes, size, at);
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off_t at) {
    return pwrite(file, bytes, size, at);
}

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) {
    off_t end = at;
    for (int part = 0; part < count; part++) end += parts[part].iov_len;
    if (lacks_room(file, end)) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_pwritev, file, parts, count, at, 0);
}

ssize_t pwritev64(int file, const struct iovec *parts, int count, off_t at) {
    return pwritev(file, parts, count, at);
}

int fallocate(int file, int mode, off_t at, off_t size) {
    if (lacks_room(file, at + size)) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_fallocate, file, mode, at, size);
}

int fallocate64(int file, int mode, off_t at, off_t size) {
    return fallocate(file, mode, at, size);
}

int posix_fallocate(int file, off_t at, off_t size) {
    return fallocate(file, 0, at, size) == 0 ? 0 : errno;
}

int posix_fallocate64(int file, off_t at, off_t size) {
    return posix_fallocate(file, at, size);
}
