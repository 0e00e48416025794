import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.stream.Stream;

/**
 * Java's lock libraries, played by order: see benchmarks/load/src/serve.rs. The first argument is the server's URL, or
 * those of several servers with commas between them.
 */
public final class Peers {
    public static void main(String[] arguments) throws Exception {
        List<URI> servers = Stream.of(arguments[0].split(",")).map(URI::create).toList();
        List<String> addresses = servers.stream().map(URI::getAuthority).toList();
        boolean isZooKeeper = servers.get(0).getScheme().equals("zookeeper");
        Library library = isZooKeeper ? new Curator(addresses.get(0)) : new Redisson(addresses);
        String name = isZooKeeper ? "curator" : "redisson";
        String version = library.version() == null ? "unknown" : library.version();
        System.out.println("{\"subjects\":{\"" + name + "\":\"" + version + "\"}}");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        Stage stage = null;
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            String[] words = order.trim().split(" +");
            String answer = "{}";
            try {
                switch (words[0]) {
                    case "enter" -> stage = new Stage(library, words[2]);
                    case "round" -> answer = json(stage.round(Long.parseLong(words[2])));
                    case "leave" -> stage.close();
                    default -> throw new IllegalArgumentException("this is no order: " + order);
                }
            } catch (Exception error) {
                answer = "{\"error\":\"" + error.toString().replaceAll("[^ -~]|[\"\\\\]", " ") + "\"}";
            }
            System.out.println(answer);
        }
        // Its threads would keep the process alive.
        System.exit(0);
    }

    private static String json(Map<String, Double> figures) {
        StringJoiner fields = new StringJoiner(",", "{", "}");
        figures.forEach((unit, value) -> fields.add("\"" + unit + "\":" + value));
        return fields.toString();
    }
}
