SELECT writer, reader FROM polylock_fences WHERE resource = :resource FOR SHARE;
