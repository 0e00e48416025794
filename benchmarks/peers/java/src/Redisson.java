import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson's RLock, with its watchdog. A lock belongs to a thread. */
final class Redisson {
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

    static RLock lock(RedissonClient client, String name) {
        return client.getLock("redisson:" + name);
    }
}
