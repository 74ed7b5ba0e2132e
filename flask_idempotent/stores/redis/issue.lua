-- Record a token. One that is there already stays: a late copy of the command must not revive it.
--
-- KEYS[1]  the record
-- ARGV     binding, scene, ttl (microseconds)
-- Reply    1

local key, now = KEYS[1], clock()
local ends = now + tonumber(ARGV[3])
local token = {
  state = 'i', fence = 0, held = 0, expires = ends, issued = ends,
  owner = '', binding = ARGV[1], scene = ARGV[2], fingerprint = '',
}
if not write(key, token, 'NX') and read(key, now) == nil then
  write(key, token)
end
return 1
