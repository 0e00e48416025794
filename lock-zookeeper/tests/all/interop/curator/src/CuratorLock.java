import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/**
 * Holds locks as Curator does. Obeys lines on its standard input, one answer for each:
 *
 * <p>try PATH: true or false. wait PATH: true when it has it. drop PATH: "released". add NODE PATH TIMES: reads and
 * writes a counter so often, under the lock.
 */
final class CuratorLock {
    private static final int SESSION_MILLIS = 50_000;
    private static final int CONNECT_MILLIS = 20_000;

    private final CuratorFramework client;
    private final Map<String, InterProcessMutex> locks = new HashMap<>();

    private CuratorLock(String servers) {
        client = CuratorFrameworkFactory.newClient(servers, SESSION_MILLIS, CONNECT_MILLIS, new RetryOneTime(100));
        client.start();
    }

    public static void main(String[] arguments) throws Exception {
        var curator = new CuratorLock(arguments[0]);
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(curator.obey(line.split(" ")));
        }
    }

    private String obey(String[] words) throws Exception {
        return switch (words[0]) {
            case "try" -> String.valueOf(lock(words[1]).acquire(0, TimeUnit.SECONDS));
            case "wait" -> {
                lock(words[1]).acquire();
                yield "true";
            }
            case "drop" -> {
                lock(words[1]).release();
                yield "released";
            }
            case "add" -> add(words[1], lock(words[2]), Integer.parseInt(words[3]));
            default -> throw new IllegalArgumentException(words[0]);
        };
    }

    private InterProcessMutex lock(String path) {
        return locks.computeIfAbsent(path, key -> new InterProcessMutex(client, key));
    }

    private String add(String node, InterProcessMutex lock, int times) throws Exception {
        for (int time = 0; time < times; time++) {
            lock.acquire();
            try {
                var value = new String(client.getData().forPath(node), StandardCharsets.UTF_8);
                var next = String.valueOf(Integer.parseInt(value) + 1);
                client.setData().forPath(node, next.getBytes(StandardCharsets.UTF_8));
            } finally {
                lock.release();
            }
        }
        return "done";
    }
}
