import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson's RLock and RReadWriteLock, with their watchdog, and its RPermitExpirableSemaphore. A lock belongs to a thread. */
final class Redisson {
    private static final long LEASE_SECONDS = 30;

    private final String address;

    Redisson(String address) {
        this.address = address;
    }

    /** Its defaults, where a client is one of few; of a hundred, each has threads and connections for one lock. */
    RedissonClient connect(boolean small) {
        Config config = new Config();
        var server = config.useSingleServer().setAddress(address);
        if (small) {
            config.setThreads(2).setNettyThreads(2);
            server.setConnectionPoolSize(2).setConnectionMinimumIdleSize(1);
            server.setSubscriptionConnectionPoolSize(1).setSubscriptionConnectionMinimumIdleSize(1);
        } else {
            server.setConnectionPoolSize(128);
        }
        return org.redisson.Redisson.create(config);
    }

    /** One thread's way to one name. */
    interface Lock {
        void acquire() throws InterruptedException;

        void release();
    }

    static Lock lock(RedissonClient client, String name) {
        return of(client.getLock("redisson:" + name));
    }

    static RReadWriteLock readWrite(RedissonClient client, String name) {
        return client.getReadWriteLock("redisson:" + name);
    }

    static Lock of(RLock lock) {
        return new Lock() {
            @Override
            public void acquire() {
                lock.lock();
            }

            @Override
            public void release() {
                lock.unlock();
            }
        };
    }

    static Lock permit(RedissonClient client, String name, int permits) {
        RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore("redisson:" + name);
        semaphore.trySetPermits(permits);
        return new Lock() {
            private String permit;

            @Override
            public void acquire() throws InterruptedException {
                permit = semaphore.acquire(LEASE_SECONDS, TimeUnit.SECONDS);
            }

            @Override
            public void release() {
                semaphore.release(permit);
            }
        };
    }
}
