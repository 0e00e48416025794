import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.LongStream;

/** What a round has measured, by the names of benchmarks/load's units. */
final class Figures {
    private Figures() {}

    static Map<String, Double> of(String kind, List<Stage.Part> parts, long started) {
        Map<String, Double> figures = new LinkedHashMap<>();
        LongStream all = parts.stream().flatMapToLong(part -> LongStream.of(part.times).limit(part.pairs));
        long[] times = all.sorted().toArray();
        if (times.length == 0) {
            return figures;
        }
        figures.put("us-p50", times[(times.length - 1) / 2] / 1000.0);
        figures.put("us-p99", times[(int) ((times.length - 1) * 0.99)] / 1000.0);
        if (!kind.equals("handoff")) {
            long ended = parts.stream().mapToLong(part -> part.ended).max().orElse(started);
            figures.put("pairs/s", times.length * 1e9 / (ended - started));
            figures.put("pairs", (double) times.length);
        }
        if (!List.of("own", "beside", "handoff").contains(kind)) {
            figures.put("share-min/max", share(parts));
        }
        if (parts.stream().anyMatch(part -> part.writes)) {
            figures.put("us-write-max", parts.stream().mapToLong(part -> part.longestWrite).max().orElse(0) / 1000.0);
        }
        return figures;
    }

    /** Of each client; of each thread, where there is but one. */
    private static double share(List<Stage.Part> parts) {
        boolean single = parts.stream().allMatch(part -> part.client == 0);
        Map<Integer, Long> shares = new TreeMap<>();
        for (int thread = 0; thread < parts.size(); thread++) {
            Stage.Part part = parts.get(thread);
            shares.merge(single ? thread : part.client, (long) part.pairs, Long::sum);
        }
        long least = shares.values().stream().min(Long::compare).orElse(0L);
        long most = shares.values().stream().max(Long::compare).orElse(1L);
        return least / (double) Math.max(most, 1);
    }
}
