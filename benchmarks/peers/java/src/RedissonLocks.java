import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisConnectionException;
import org.redisson.client.RedisTimeoutException;
import org.redisson.config.Config;

/** Redisson's RLock, or its RFencedLock, renewed by the watchdog unless a lease time is asked for. */
final class RedissonLocks implements Conformance.Locks {
    private final Config config = new Config();
    private final boolean isFenced;
    private final RedissonClient client;

    RedissonLocks(String server, Duration ttl, boolean isFenced) {
        config.useSingleServer().setAddress("redis://" + server);
        config.setLockWatchdogTimeout(ttl.toMillis());
        this.isFenced = isFenced;
        // With many connections, each of which has replies of its own: no case is to count them.
        client = org.redisson.Redisson.create(config);
    }

    @Override
    public String version() {
        return org.redisson.Version.class.getPackage().getImplementationVersion();
    }

    @Override
    public Conformance.Hold acquire(String name, Duration ttl, Duration wait, boolean fixed) throws Exception {
        RLock lock = isFenced ? client.getFencedLock(name) : client.getLock(name);
        long lease = fixed ? ttl.toMillis() : -1;
        boolean isAcquired = true;
        try {
            if (wait == null) {
                lock.lockInterruptibly(lease, TimeUnit.MILLISECONDS);
            } else if (wait.isZero() && !fixed) {
                isAcquired = lock.tryLock();
            } else {
                isAcquired = lock.tryLock(wait.toMillis(), lease, TimeUnit.MILLISECONDS);
            }
        } catch (RedisConnectionException | RedisTimeoutException error) {
            throw new Conformance.Failed("unavailable", error.toString());
        }
        if (!isAcquired) {
            return null;
        }
        Long token = isFenced ? ((RFencedLock) lock).getToken() : null;
        return new Conformance.Hold() {
            @Override
            public void release() throws Exception {
                try {
                    lock.unlock();
                } catch (IllegalMonitorStateException error) {
                    throw new Conformance.Failed("lost", error.toString());
                } catch (RedisConnectionException | RedisTimeoutException error) {
                    throw new Conformance.Failed("unavailable", error.toString());
                }
            }

            @Override
            public Long token() {
                return token;
            }
        };
    }
}
