INSERT INTO polylock_fences AS f (resource, writer) VALUES (:resource, :token)
    ON CONFLICT (resource) DO UPDATE SET writer = :token WHERE f.writer <= :token AND f.reader <= :token;
SELECT writer, reader FROM polylock_fences WHERE resource = :resource;
