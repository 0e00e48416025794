('x' || substr(encode(sha256(decode('706f6c796c6f636b007472616e73616374696f6e00', 'hex') || :name), 'hex'), 1, 16))::bit(64)::bigint
