// The wall clock of a process, moved by what stands in the file POLYLOCK_CLOCK: which of the two settings below counts,
// so that each changes at once; then each setting. It is ahead by so many nanoseconds, and by so many millionths of
// the time since a moment of the real clock.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct setting { int64_t ahead, faster, since; };
struct page { int64_t which; struct setting settings[2]; };
static const volatile struct page *page;

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("POLYLOCK_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(struct page), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) page = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && page && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        const volatile struct setting *now = &page->settings[page->which & 1];
        int64_t nanos = time->tv_sec * INT64_C(1000000000) + time->tv_nsec;
        nanos += now->ahead + (int64_t)((nanos - now->since) * (now->faster / 1e6));
        time->tv_sec = nanos / 1000000000;
        time->tv_nsec = nanos % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

// The kernel ends a wait by its own clock. Moments of the monotonic clock are not far from the start of the machine.
static const struct timespec *by_kernel(const struct timespec *until, struct timespec *real) {
    struct timespec moved;
    if (!page || until->tv_sec < 1000000000) return until;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, real);
    clock_gettime(CLOCK_REALTIME, &moved);
    int64_t nanos = (int64_t)(until->tv_sec - moved.tv_sec + real->tv_sec) * 1000000000
        + until->tv_nsec - moved.tv_nsec + real->tv_nsec;
    if (nanos < 0) nanos = 0;
    real->tv_sec = nanos / 1000000000;
    real->tv_nsec = nanos % 1000000000;
    return real;
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    struct timespec real;
    if (!wait) *(void **)&wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    return wait(cond, mutex, by_kernel(until, &real));
}

int pthread_cond_clockwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, clockid_t clock,
                           const struct timespec *restrict until) {
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    struct timespec real;
    if (!wait) *(void **)&wait = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    return wait(cond, mutex, clock, by_kernel(until, &real));
}
