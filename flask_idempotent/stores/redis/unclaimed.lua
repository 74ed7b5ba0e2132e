-- What nearly every claim meets: a new key, a token that nobody has claimed, an answer that is there. It stands before
-- record.lua and claim.lua, whose rules come to the same; this takes half of their time, since it hardly takes a record
-- apart and prints hardly a number.
--
-- KEYS[1], ARGV and reply: see claim.lua

local key, time = KEYS[1], redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local since = time[1] .. string.sub('00000' .. time[2], #time[2])
local owner, binding, scene, fingerprint, terms, bare, sizes = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local must_exist, lease, ttl = string.sub(terms, 3, 3) == '1', string.sub(terms, 4, 19), string.sub(terms, 20, 35)
local text = redis.pcall('GET', key)

local issued, expires, place = '', nil, scene
if not text then
  if must_exist then return 'absent 0 ' end
  expires = string.format('%016.0f', now + ttl)
elseif type(text) == 'string' then
  local moments, found, at = string.match(text, '^1i0(%d+),(,%d*,%d*,),\n()')
  if found then
    local texts = string.sub(text, at)
    if found == string.sub(bare, 1, #found) and texts == binding then -- of no scene, it fits every one
      issued, place, sizes = moments, '', bare
    elseif found == string.sub(sizes, 1, #found) and texts == binding .. scene then
      issued = moments
    end
    if #issued == 16 and issued - now >= 2 * lease then expires = issued end
  else
    moments, found, at = string.match(text, '^1d[0-3](%d+),%d*(,[%d,]+\n)()')
    if found == bare then place = '' end
    local texts = binding .. place .. fingerprint
    if (found == bare or found == sizes) and string.sub(text, at, at + #texts - 1) == texts and #moments >= 48 then
      local held = string.sub(moments, 17, 32) + string.sub(moments, 33, 48)
      if now < held then return 'done ' .. since .. ' ' .. text end
    end
  end
end

if expires then
  local held = string.sub(terms, 1, 1) == 'r' and since .. lease .. expires or expires .. '0000000000000000'
  text = '1' .. string.sub(terms, 1, 2) .. since .. held .. issued .. ',' .. sizes .. binding .. place .. fingerprint .. owner
  if issued == '' then
    redis.call('SET', key, text, 'PX', string.sub(terms, 36))
  else
    redis.call('SET', key, text, 'KEEPTTL') -- it lives to the token's own end
  end
  return text
end
