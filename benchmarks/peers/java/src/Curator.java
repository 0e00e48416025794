import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** Curator's InterProcessMutex, on sessions of polylock's length. A lock belongs to a thread. */
final class Curator implements Library {
    private static final int SESSION_MILLIS = 10_000;
    private static final int CONNECT_MILLIS = 5_000;

    private final String servers;

    Curator(String servers) {
        this.servers = servers;
    }

    @Override
    public String version() {
        return CuratorFramework.class.getPackage().getImplementationVersion();
    }

    @Override
    public Client connect(boolean small) throws InterruptedException {
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(servers, SESSION_MILLIS, CONNECT_MILLIS, new RetryOneTime(100));
        client.start();
        if (!client.blockUntilConnected(CONNECT_MILLIS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("no connection");
        }
        return new Client() {
            @Override
            public Lock lock(String name) {
                InterProcessMutex mutex = new InterProcessMutex(client, "/curator/" + name.replace('/', '-'));
                return new Lock() {
                    @Override
                    public void acquire() throws Exception {
                        mutex.acquire();
                    }

                    @Override
                    public void release() throws Exception {
                        mutex.release();
                    }
                };
            }

            @Override
            public void close() {
                client.close();
            }
        };
    }
}
