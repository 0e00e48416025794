import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.KeeperException;

/** Curator's InterProcessMutex, with a listener as its documentation recommends. */
final class CuratorLocks implements Conformance.Locks {
    private final CuratorFramework client;
    private boolean isStarted;
    /** So often the session was lost. */
    private volatile int losses;
    private volatile boolean isSuspended;

    CuratorLocks(String server, Duration session) {
        // As in the guide: 1 s to begin with, three times.
        client = CuratorFrameworkFactory.builder()
                .connectString(server)
                .sessionTimeoutMs((int) session.toMillis())
                .retryPolicy(new ExponentialBackoffRetry(1000, 3))
                .build();
        client.getConnectionStateListenable().addListener((framework, state) -> {
            isSuspended = state == ConnectionState.SUSPENDED || state == ConnectionState.LOST;
            if (state == ConnectionState.LOST) {
                losses++;
            }
        });
    }

    @Override
    public String version() {
        return CuratorFramework.class.getPackage().getImplementationVersion();
    }

    private synchronized CuratorFramework connected() throws InterruptedException {
        if (!isStarted) {
            client.start();
            client.blockUntilConnected();
            isStarted = true;
        }
        return client;
    }

    @Override
    public Conformance.Hold acquire(String name, Duration ttl, Duration wait, boolean fixed) throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(connected(), name);
        int before = losses;
        try {
            if (wait == null) {
                mutex.acquire();
            } else if (!mutex.acquire(wait.toMillis(), TimeUnit.MILLISECONDS)) {
                return null;
            }
        } catch (KeeperException error) {
            throw new Conformance.Failed("unavailable", error.toString());
        }
        return new Conformance.Hold() {
            @Override
            public void release() throws Exception {
                boolean isLost = losses > before;
                try {
                    mutex.release();
                } catch (IllegalMonitorStateException error) {
                    throw new Conformance.Failed("lost", error.toString());
                } catch (KeeperException error) {
                    throw new Conformance.Failed("unavailable", error.toString());
                }
                if (isLost) {
                    throw new Conformance.Failed("lost", "the listener was told LOST");
                }
            }

            @Override
            public String state() {
                if (losses > before) {
                    return "lost";
                }
                return isSuspended ? "suspect" : "held";
            }
        };
    }
}
