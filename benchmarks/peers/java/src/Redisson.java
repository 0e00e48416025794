import java.util.List;
import java.util.concurrent.TimeUnit;
import org.redisson.RedissonMultiLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson's RLock and RReadWriteLock, with their watchdog, and its RPermitExpirableSemaphore; on several servers its
 * RedissonMultiLock. A lock belongs to a thread.
 */
final class Redisson implements Library {
    private static final long LEASE_SECONDS = 30;

    private final List<String> addresses;

    Redisson(List<String> addresses) {
        this.addresses = addresses;
    }

    @Override
    public String version() {
        return org.redisson.Version.class.getPackage().getImplementationVersion();
    }

    /** Its defaults, where a client is one of few; of a hundred, each has threads and connections for one lock. */
    @Override
    public Client connect(boolean small) {
        List<RedissonClient> clients = addresses.stream().map(address -> connect(address, small)).toList();
        RedissonClient client = clients.get(0);
        return new Client() {
            @Override
            public Lock lock(String name) {
                RLock[] locks = clients.stream().map(each -> each.getLock("redisson:" + name)).toArray(RLock[]::new);
                return of(locks.length == 1 ? locks[0] : new RedissonMultiLock(locks));
            }

            @Override
            public Lock read(String name) {
                return of(readWrite(name).readLock());
            }

            @Override
            public Lock write(String name) {
                return of(readWrite(name).writeLock());
            }

            @Override
            public Lock permit(String name, int permits) {
                return Redisson.permit(client, name, permits);
            }

            @Override
            public Runnable stay(String name, long reader) throws Exception {
                RLock lock = readWrite(name).readLock();
                // To the server, a thread of one client is as much a reader as a client is.
                lock.lockAsync(reader).get();
                return () -> lock.unlockAsync(reader).toCompletableFuture().join();
            }

            private RReadWriteLock readWrite(String name) {
                return client.getReadWriteLock("redisson:" + name);
            }

            @Override
            public void close() {
                clients.forEach(RedissonClient::shutdown);
            }
        };
    }

    private static RedissonClient connect(String address, boolean small) {
        Config config = new Config();
        var server = config.useSingleServer().setAddress("redis://" + address);
        if (small) {
            config.setThreads(2).setNettyThreads(2);
            server.setConnectionPoolSize(2).setConnectionMinimumIdleSize(1);
            server.setSubscriptionConnectionPoolSize(1).setSubscriptionConnectionMinimumIdleSize(1);
        } else {
            server.setConnectionPoolSize(128);
        }
        return org.redisson.Redisson.create(config);
    }

    private static Lock of(RLock lock) {
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

    private static Lock permit(RedissonClient client, String name, int permits) {
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
