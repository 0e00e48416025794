-- Included with `purpose_at`. Callers of a single server give two keys, since each costs the server about a third of a `GET`. The
-- others are as the second, with another purpose.
if not KEYS[3] then
  local before, behind = string.sub(KEYS[2], 1, purpose_at), string.sub(KEYS[2], purpose_at + #':fence' + 1)
  for index, purpose in ipairs({':fence', ':queue', ':ends', ':terms'}) do
    KEYS[index + 1] = before .. purpose .. behind
  end
end
