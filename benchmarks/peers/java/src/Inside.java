import java.util.concurrent.atomic.AtomicLong;

/** Who is inside at this moment: whether the lock under test keeps its word. */
final class Inside {
    private static final long WRITER = 1L << 32;

    /** How a name is held: alone, beside readers, or beside so many others. */
    record Mode(boolean alone, long most) {
        static final Mode EXCLUSIVE = new Mode(true, 1);
        static final Mode SHARED = new Mode(false, Integer.MAX_VALUE);

        private long counted() {
            return alone ? WRITER : 1;
        }
    }

    private final AtomicLong inside = new AtomicLong();

    void enter(Mode mode) {
        long before = inside.getAndAdd(mode.counted());
        long writers = before / WRITER;
        long others = before % WRITER;
        if (writers > 0 || (mode.alone ? others > 0 : others >= mode.most)) {
            throw new IllegalStateException(mode + " was granted beside " + writers + " writers and " + others + " others");
        }
    }

    void leave(Mode mode) {
        inside.addAndGet(-mode.counted());
    }
}
