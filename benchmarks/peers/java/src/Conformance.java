import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Java's lock libraries as clients of the conformance suite: see benchmarks/conformance/src/process.rs. The arguments are the
 * library, the URL of its server, and the TTL in milliseconds that a client has if its locks have none.
 */
public final class Conformance {
    /** What an error means to the suite. */
    static final class Failed extends Exception {
        private final String kind;

        Failed(String kind, String message) {
            super(message);
            this.kind = kind;
        }
    }

    /** A library. */
    interface Locks {
        String version();

        /** The hold, or null if the name is taken. A wait of null is without a limit. */
        Hold acquire(String name, Duration ttl, Duration wait, boolean fixed) throws Exception;
    }

    /** A hold, which belongs to the thread that acquired it. */
    interface Hold {
        void release() throws Exception;

        /** "held", "suspect" or "lost", as the library told it. */
        default String state() {
            return "held";
        }

        /** Null without tokens. */
        default Long token() {
            return null;
        }
    }

    /** An acquire, with the thread that owns what it gets. */
    private static final class Acquire {
        final ExecutorService owner = Executors.newSingleThreadExecutor(task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
        Future<?> acquiring;
        volatile Hold hold;
        volatile boolean isGivenUp;
    }

    public static void main(String[] arguments) throws Exception {
        String server = URI.create(arguments[1]).getAuthority();
        Duration ttl = Duration.ofMillis(Long.parseLong(arguments[2]));
        Locks locks = switch (arguments[0]) {
            case "curator" -> new CuratorLocks(server, ttl);
            case "redisson-fenced" -> new RedissonLocks(server, ttl, true);
            default -> new RedissonLocks(server, ttl, false);
        };
        say(answer("version", locks.version()));
        Map<Long, Acquire> acquires = new ConcurrentHashMap<>();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            JsonObject order = JsonParser.parseString(line).getAsJsonObject();
            long id = order.get("id").getAsLong();
            String kind = order.get("do").getAsString();
            if (kind.equals("acquire")) {
                Acquire acquire = new Acquire();
                acquires.put(id, acquire);
                acquire.acquiring = acquire.owner.submit(() -> obey(id, () -> acquire(locks, acquire, order)));
                continue;
            }
            Acquire of = acquires.get(order.get("of").getAsLong());
            switch (kind) {
                case "cancel" -> {
                    of.isGivenUp = true;
                    of.acquiring.cancel(true);
                    of.owner.submit(() -> obey(null, () -> giveUp(of)));
                    say(new JsonObject(), id);
                }
                case "release" -> of.owner.submit(() -> obey(id, () -> {
                    of.hold.release();
                    return new JsonObject();
                }));
                default -> obey(id, () -> answer("state", of.hold.state()));
            }
        }
        // Nothing is released.
        Runtime.getRuntime().halt(0);
    }

    private static JsonObject acquire(Locks locks, Acquire acquire, JsonObject order) throws Exception {
        Duration wait = order.get("wait").isJsonNull() ? null : Duration.ofMillis(order.get("wait").getAsLong());
        Duration ttl = Duration.ofMillis(order.get("ttl").getAsLong());
        JsonObject answer = new JsonObject();
        Hold hold = locks.acquire(order.get("name").getAsString(), ttl, wait, order.get("fixed").getAsBoolean());
        if (hold == null) {
            if (wait.isZero()) {
                answer.addProperty("busy", true);
                return answer;
            }
            throw new Failed("timeout", "it is taken");
        }
        acquire.hold = hold;
        if (hold.token() != null) {
            answer.addProperty("token", hold.token());
        }
        return answer;
    }

    /** Releases what was granted to one who does not wait any more. */
    private static JsonObject giveUp(Acquire of) throws Exception {
        if (of.hold != null) {
            of.hold.release();
        }
        return new JsonObject();
    }

    private interface Work {
        JsonObject done() throws Exception;
    }

    private static void obey(Long id, Work work) {
        JsonObject answer;
        try {
            answer = work.done();
        } catch (Failed error) {
            answer = answer("error", error.kind);
            answer.addProperty("message", error.getMessage());
        } catch (Throwable error) {
            answer = answer("error", "other");
            answer.addProperty("message", error.toString());
        }
        if (id != null) {
            say(answer, id);
        }
    }

    private static JsonObject answer(String name, String value) {
        JsonObject answer = new JsonObject();
        answer.addProperty(name, value);
        return answer;
    }

    private static void say(JsonObject answer, long id) {
        answer.addProperty("id", id);
        say(answer);
    }

    private static synchronized void say(JsonObject answer) {
        System.out.println(answer);
    }
}
