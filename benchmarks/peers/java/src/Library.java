/** A lock library. */
interface Library {
    String version();

    /** With few threads and connections if it is one of a hundred, each for one lock. */
    Client connect(boolean small) throws Exception;

    /** What has one connection, or one pool of them. */
    interface Client {
        Lock lock(String name);

        default Lock read(String name) {
            throw new UnsupportedOperationException("no readers");
        }

        default Lock write(String name) {
            throw new UnsupportedOperationException("no writers");
        }

        default Lock permit(String name, int permits) {
            throw new UnsupportedOperationException("no permits");
        }

        /** Reads as somebody of this number, until what it returns is run. */
        default Runnable stay(String name, long reader) throws Exception {
            throw new UnsupportedOperationException("no readers");
        }

        void close();
    }

    /** One thread's way to one name. */
    interface Lock {
        void acquire() throws Exception;

        void release() throws Exception;
    }
}
