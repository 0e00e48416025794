import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicReference;

/** A workload on a subject: the same as in benchmarks/load. */
final class Stage {
    private static final long HOLD_MILLIS = 3;
    private static final long PAUSE_MILLIS = 2;
    private static final int RW_TASKS = 8;
    private static final int PERMITS = 16;
    private static final int STAYS = 7;
    private static final List<String> KINDS =
            List.of("own", "one", "two", "crowd", "read", "rw", "permits", "beside", "handoff");

    /** One thread's place: the write side is null where it does not write. */
    private record Seat(int client, Library.Lock lock, Inside.Mode mode, Library.Lock write) {
        Seat(int client, Library.Lock lock) {
            this(client, lock, Inside.Mode.EXCLUSIVE, null);
        }
    }

    private final String kind;
    private final int number;
    private final Library subject;
    private final List<Library.Client> clients = new ArrayList<>();
    private final List<Seat> seats = new ArrayList<>();
    /** Gives back the readers that stay. */
    private final List<Runnable> beside = new ArrayList<>();
    private final ExecutorService threads;

    Stage(Library subject, String workload) throws Exception {
        String[] words = workload.split("-");
        kind = words[0];
        number = Integer.parseInt(words[1]);
        this.subject = subject;
        if (words.length != 2 || !KINDS.contains(kind)) {
            throw new IllegalArgumentException("there is no workload " + workload + " here");
        }
        switch (kind) {
            case "two" -> {
                for (int client = 0; client < 2; client++) {
                    seats(number, new Seat(client, connect().lock(kind)));
                }
            }
            case "read" -> seats(number, reader(0, connect().read(kind)));
            case "rw" -> {
                for (int client = 0; client < 2; client++) {
                    Library.Client connected = connect();
                    Library.Lock write = connected.write(kind);
                    seats(RW_TASKS, new Seat(client, connected.read(kind), Inside.Mode.SHARED, write));
                }
            }
            case "permits" -> {
                Library.Client client = connect();
                var mode = new Inside.Mode(false, PERMITS);
                for (int task = 0; task < number; task++) {
                    seats.add(new Seat(0, client.permit(kind, PERMITS), mode, null));
                }
            }
            case "beside" -> {
                Library.Client client = connect();
                for (int reader = 0; reader < number; reader++) {
                    beside.add(client.stay(workload, 1_000_000 + reader));
                }
                seats.add(reader(0, client.read(workload)));
            }
            default -> exclusive();
        }
        threads = Executors.newFixedThreadPool(seats.size());
    }

    private void exclusive() throws Exception {
        for (int task = 0; task < number; task++) {
            if (task == 0 || isOfManyClients()) {
                connect();
            }
            String name = kind.equals("own") ? "own/" + task : kind;
            seats.add(new Seat(clients.size() - 1, clients.get(clients.size() - 1).lock(name)));
        }
    }

    private boolean isOfManyClients() {
        return kind.equals("crowd") || kind.equals("handoff");
    }

    private void seats(int many, Seat seat) {
        for (int task = 0; task < many; task++) {
            seats.add(seat);
        }
    }

    private static Seat reader(int client, Library.Lock lock) {
        return new Seat(client, lock, Inside.Mode.SHARED, null);
    }

    private Library.Client connect() throws Exception {
        Library.Client client = subject.connect(number > 2 && isOfManyClients());
        clients.add(client);
        return client;
    }

    void close() {
        threads.shutdown();
        beside.forEach(Runnable::run);
        clients.forEach(Library.Client::close);
    }

    /** Who released last. */
    private record Last(long at, int client) {}

    static final class Part {
        final int client;
        int pairs;
        long[] times = new long[1024];
        long ended;
        boolean writes;
        long longestWrite;

        Part(Seat seat) {
            client = seat.client;
            writes = seat.write != null;
        }

        void note(long took, long at) {
            if (pairs == times.length) {
                times = Arrays.copyOf(times, 2 * pairs);
            }
            times[pairs++] = took;
            ended = at;
        }
    }

    Map<String, Double> round(long millis) throws InterruptedException, ExecutionException {
        AtomicReference<Last> released = new AtomicReference<>();
        Inside inside = new Inside();
        long started = System.nanoTime();
        long deadline = started + millis * 1_000_000;
        List<Future<Part>> running = new ArrayList<>();
        for (int place = 0; place < seats.size(); place++) {
            Seat seat = seats.get(place);
            int task = place;
            Callable<Part> play = () -> switch (kind) {
                case "own" -> own(seat, deadline);
                case "handoff" -> handOff(seat, inside, deadline, released);
                default -> one(seat, task, inside, deadline);
            };
            running.add(threads.submit(play));
        }
        List<Part> parts = new ArrayList<>();
        for (Future<Part> part : running) {
            parts.add(part.get());
        }
        return Figures.of(kind, parts, started);
    }

    private static Part own(Seat seat, long deadline) throws Exception {
        Part part = new Part(seat);
        long begun = System.nanoTime();
        while (begun < deadline) {
            seat.lock.acquire();
            seat.lock.release();
            long ended = System.nanoTime();
            part.note(ended - begun, ended);
            begun = ended;
        }
        return part;
    }

    private Part one(Seat seat, int task, Inside inside, long deadline) throws Exception {
        Part part = new Part(seat);
        int turn = task * 7;
        for (long begun = System.nanoTime(); begun < deadline; begun = System.nanoTime()) {
            boolean writes = seat.write != null && writes(turn, number);
            Library.Lock lock = writes ? seat.write : seat.lock;
            Inside.Mode mode = writes ? Inside.Mode.EXCLUSIVE : seat.mode;
            lock.acquire();
            long acquired = System.nanoTime();
            inside.enter(mode);
            if (turn % STAYS == 0) {
                Thread.yield();
            }
            inside.leave(mode);
            lock.release();
            if (writes) {
                part.longestWrite = Math.max(part.longestWrite, acquired - begun);
            }
            if (acquired < deadline) {
                part.note(acquired - begun, acquired);
            }
            turn++;
        }
        return part;
    }

    private static boolean writes(int turn, int percent) {
        int writes = 100 - percent;
        return (turn + 1) * writes / 100 > turn * writes / 100;
    }

    private static Part handOff(Seat seat, Inside inside, long deadline, AtomicReference<Last> released)
            throws Exception {
        Part part = new Part(seat);
        for (long begun = System.nanoTime(); begun < deadline; begun = System.nanoTime()) {
            seat.lock.acquire();
            long acquired = System.nanoTime();
            inside.enter(Inside.Mode.EXCLUSIVE);
            Last from = released.get();
            if (from != null && from.client != seat.client && begun < from.at && acquired < deadline) {
                part.note(acquired - from.at, acquired);
            }
            if (acquired < deadline) {
                Thread.sleep(HOLD_MILLIS);
            }
            released.set(new Last(System.nanoTime(), seat.client));
            inside.leave(Inside.Mode.EXCLUSIVE);
            seat.lock.release();
            Thread.sleep(PAUSE_MILLIS);
        }
        return part;
    }
}
