import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.util.Map;
import java.util.StringJoiner;

/** Java's lock libraries, played by order: see benchmarks/load/src/serve.rs. The first argument is the server's URL. */
public final class Peers {
    public static void main(String[] arguments) throws Exception {
        URI server = URI.create(arguments[0]);
        Redisson redisson = new Redisson("redis://" + server.getHost() + ":" + server.getPort());
        String version = org.redisson.Version.class.getPackage().getImplementationVersion();
        System.out.println("{\"subjects\":{\"redisson\":\"" + (version == null ? "unknown" : version) + "\"}}");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        Stage stage = null;
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            String[] words = order.trim().split(" +");
            String answer = "{}";
            try {
                switch (words[0]) {
                    case "enter" -> stage = new Stage(redisson, words[2]);
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
