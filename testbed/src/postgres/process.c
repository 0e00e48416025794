// How PostgreSQL and PgBouncer run in tests.
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

// Both refuse to run as root, which tests may be run by: then they believe that they run as nobody.
static uid_t not_root(uid_t user) { return user == 0 ? 65534 : user; }
uid_t getuid(void) { return not_root(syscall(SYS_getuid)); }
uid_t geteuid(void) { return not_root(syscall(SYS_geteuid)); }

// Each process of a PostgreSQL would lead a process group of its own. They stay in one, to be stopped and killed together.
pid_t setsid(void) { return getpid(); }
int kill(pid_t pid, int signal) { return syscall(SYS_kill, pid < -1 ? -pid : pid, signal); }

// A killed PostgreSQL leaves its shared memory, of which a system has room for some thousands. So it goes with its last user.
void *shmat(int id, const void *address, int flags) {
    void *memory = (void *)syscall(SYS_shmat, id, address, flags);
    syscall(SYS_shmctl, id, IPC_RMID, 0);
    return memory;
}
