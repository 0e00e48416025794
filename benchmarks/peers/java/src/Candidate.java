import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.retry.RetryOneTime;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * A candidate in an election: see benchmarks/src/candidate.rs. Its arguments are the server's URL, the election's name, and how many
 * milliseconds after its process died another one leads.
 */
public final class Candidate {
    /** How a library elects. */
    private interface Library {
        void campaign() throws Exception;

        void resign() throws Exception;

        void close() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        java.net.URI server = java.net.URI.create(arguments[0]);
        int ttl = Integer.parseInt(arguments[2]);
        boolean isZooKeeper = server.getScheme().equals("zookeeper");
        Library library = isZooKeeper
                ? new Latch(server.getAuthority(), arguments[1], ttl)
                : new Lock(server.getAuthority(), arguments[1], ttl);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        while (true) {
            System.out.println("waits");
            library.campaign();
            System.out.println("leads");
            boolean goesOn = "resign".equals(orders.readLine());
            library.resign();
            if (!goesOn) {
                library.close();
                System.exit(0);
            }
            // So that another candidate leads, as polylock's pauses.
            Thread.sleep(ttl / 3);
        }
    }

    /** Curator's LeaderLatch: one for each term. */
    private static final class Latch implements Library {
        private final CuratorFramework client;
        private final String path;
        private LeaderLatch latch;

        Latch(String servers, String name, int sessionMillis) {
            client = CuratorFrameworkFactory.newClient(servers, sessionMillis, 5_000, new RetryOneTime(100));
            client.start();
            path = "/curator/" + name;
        }

        @Override
        public void campaign() throws Exception {
            latch = new LeaderLatch(client, path);
            latch.start();
            latch.await();
        }

        @Override
        public void resign() throws Exception {
            latch.close();
        }

        @Override
        public void close() {
            client.close();
        }
    }

    /** Redisson has no election: its users hold a lock that its watchdog renews. */
    private static final class Lock implements Library {
        private final RedissonClient client;
        private final RLock lock;

        Lock(String address, String name, int watchdogMillis) {
            Config config = new Config();
            config.setLockWatchdogTimeout(watchdogMillis);
            config.useSingleServer().setAddress("redis://" + address);
            client = org.redisson.Redisson.create(config);
            lock = client.getLock("redisson:" + name);
        }

        @Override
        public void campaign() {
            lock.lock();
        }

        @Override
        public void resign() {
            lock.unlock();
        }

        @Override
        public void close() {
            client.shutdown();
        }
    }
}
