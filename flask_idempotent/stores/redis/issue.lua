-- Record a token. One that is there already stays: a late copy of the command must not revive it.
--
-- KEYS[1]  the record
-- ARGV     ttl (microseconds), the texts packed from the first length on
-- Reply    1

local key, now = KEYS[1], clock()
local ends = now + ARGV[1]
local text = string.format('1i0%016.0f', ends) .. ARGV[2]
if not put(key, text, ends, 'NX') and read(fetch(key), now) == nil then
  put(key, text, ends)
end
return 1
