import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.LongStream;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** A workload on a subject: the same as in benchmarks/load. */
final class Stage {
    private static final long HOLD_MILLIS = 3;
    private static final long PAUSE_MILLIS = 2;

    private final String kind;
    private final List<RedissonClient> clients = new ArrayList<>();
    private final List<RLock> locks = new ArrayList<>();
    private final ExecutorService threads;

    Stage(Redisson subject, String workload) {
        String[] words = workload.split("-");
        kind = words[0];
        int many = Integer.parseInt(words[1]);
        if (words.length != 2 || !List.of("own", "one", "handoff").contains(kind)) {
            throw new IllegalArgumentException("there is no workload " + workload + " here");
        }
        for (int number = 0; number < many; number++) {
            if (number == 0 || kind.equals("handoff")) {
                clients.add(subject.connect(many > 2 && kind.equals("handoff")));
            }
            String name = kind.equals("own") ? "own/" + number : kind;
            locks.add(Redisson.lock(clients.get(clients.size() - 1), name));
        }
        threads = Executors.newFixedThreadPool(many);
    }

    void close() {
        threads.shutdown();
        clients.forEach(RedissonClient::shutdown);
    }

    /** Who released last. */
    private record Last(long at, int client) {}

    private static final class Part {
        int pairs;
        long[] times = new long[1024];
        long ended;

        void note(long took, long at) {
            if (pairs == times.length) {
                times = Arrays.copyOf(times, 2 * pairs);
            }
            times[pairs++] = took;
            ended = at;
        }

        LongStream times() {
            return Arrays.stream(times, 0, pairs);
        }
    }

    Map<String, Double> round(long millis) throws InterruptedException, ExecutionException {
        AtomicReference<Last> released = new AtomicReference<>();
        long started = System.nanoTime();
        long deadline = started + millis * 1_000_000;
        List<Future<Part>> running = new ArrayList<>();
        for (int number = 0; number < locks.size(); number++) {
            RLock lock = locks.get(number);
            int client = number;
            Callable<Part> play = () -> switch (kind) {
                case "own" -> own(lock, deadline);
                case "one" -> one(lock, deadline);
                default -> handOff(lock, deadline, client, released);
            };
            running.add(threads.submit(play));
        }
        List<Part> parts = new ArrayList<>();
        for (Future<Part> part : running) {
            parts.add(part.get());
        }
        return figures(parts, started);
    }

    private static Part own(RLock lock, long deadline) {
        Part part = new Part();
        long begun = System.nanoTime();
        while (begun < deadline) {
            lock.lock();
            lock.unlock();
            long ended = System.nanoTime();
            part.note(ended - begun, ended);
            begun = ended;
        }
        return part;
    }

    private static Part one(RLock lock, long deadline) {
        Part part = new Part();
        for (long begun = System.nanoTime(); begun < deadline; begun = System.nanoTime()) {
            lock.lock();
            long acquired = System.nanoTime();
            lock.unlock();
            if (acquired < deadline) {
                part.note(acquired - begun, acquired);
            }
        }
        return part;
    }

    private static Part handOff(RLock lock, long deadline, int client, AtomicReference<Last> released)
            throws InterruptedException {
        Part part = new Part();
        for (long begun = System.nanoTime(); begun < deadline; begun = System.nanoTime()) {
            lock.lock();
            long acquired = System.nanoTime();
            Last from = released.get();
            if (from != null && from.client != client && begun < from.at && acquired < deadline) {
                part.note(acquired - from.at, acquired);
            }
            if (acquired < deadline) {
                Thread.sleep(HOLD_MILLIS);
            }
            released.set(new Last(System.nanoTime(), client));
            lock.unlock();
            Thread.sleep(PAUSE_MILLIS);
        }
        return part;
    }

    private Map<String, Double> figures(List<Part> parts, long started) {
        Map<String, Double> figures = new LinkedHashMap<>();
        long[] times = parts.stream().flatMapToLong(Part::times).sorted().toArray();
        if (times.length == 0) {
            return figures;
        }
        figures.put("us-p50", times[(times.length - 1) / 2] / 1000.0);
        figures.put("us-p99", times[(int) ((times.length - 1) * 0.99)] / 1000.0);
        if (!kind.equals("handoff")) {
            long ended = parts.stream().mapToLong(part -> part.ended).max().orElse(started);
            figures.put("pairs/s", times.length * 1e9 / (ended - started));
        }
        if (kind.equals("one")) {
            int least = parts.stream().mapToInt(part -> part.pairs).min().orElse(0);
            int most = parts.stream().mapToInt(part -> part.pairs).max().orElse(1);
            figures.put("share-min/max", least / (double) most);
        }
        return figures;
    }
}
