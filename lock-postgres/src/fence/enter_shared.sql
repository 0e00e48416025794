INSERT INTO polylock_fences AS f (resource, reader) VALUES (:resource, :token)
    ON CONFLICT (resource) DO UPDATE SET reader = :token WHERE f.writer <= :token AND f.reader < :token;
SELECT writer, reader FROM polylock_fences WHERE resource = :resource;
