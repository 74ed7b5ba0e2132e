-- What nearly every claim meets: a new key, a token that nobody has claimed, an answer that is there. It stands before
-- record.lua and claim.lua, whose rules come to the same; this takes half of their time, since it hardly takes a record
-- apart and prints hardly a number.
--
-- KEYS[1], ARGV and reply: see claim.lua

local key, time = KEYS[1], redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local since = time[1] .. string.sub('00000' .. time[2], -6)
local owner, binding, scene, fingerprint = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local lease, ttl, head, must_exist = ARGV[5], ARGV[6], ARGV[8], ARGV[9] == '1'
local text = redis.pcall('GET', key)

local issued, expires, place, sizes = '', nil, scene, ARGV[13]
if not text then
  if must_exist then return 'absent 0 ' end
  expires = string.format('%016.0f', now + ttl)
elseif type(text) == 'string' and string.sub(text, 1, 3) == '1i0' then
  local rest = string.sub(text, 20)
  local bare = rest == ARGV[10] .. binding -- of no scene, it fits every one
  if bare then
    place, sizes = '', ARGV[11]
  end
  if bare or rest == ARGV[12] .. binding .. scene then
    issued = string.match(text, '^1i0(%d+),') or ''
    if #issued == 16 and issued - now >= 2 * lease then expires = issued end
  end
elseif type(text) == 'string' then
  local moments, found, at = string.match(text, '^1d[0-3](%d+),%d*(,[%d,]*\n)()')
  if found == ARGV[11] then place = '' end
  local texts = binding .. place .. fingerprint
  if found and (found == ARGV[11] or found == sizes) and string.sub(text, at, at + #texts - 1) == texts then
    local held = #moments >= 48 and string.sub(moments, 17, 32) + string.sub(moments, 33, 48) or 0
    if now < held then return 'done ' .. since .. ' ' .. text end
  end
end

if expires then
  local held = head > 'r' and since .. lease .. expires or expires .. '0000000000000000'
  text = '1' .. head .. since .. held .. issued .. ',' .. sizes .. binding .. place .. fingerprint .. owner
  if issued == '' then
    redis.call('SET', key, text, 'PX', ARGV[7])
  else
    redis.call('SET', key, text, 'KEEPTTL') -- it lives to the token's own end
  end
  return text
end
