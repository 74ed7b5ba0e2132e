-- Give a claimed record a new state, as machine.settle does.
--
-- KEYS[1]  the record
-- ARGV     owner, state (i restores, r extends, d, f), hold, ttl (microseconds), length of the result in bytes ('' for
--          none), result, packed record of the claim, to be written anew if the store has lost it ('' for i and r)
-- Reply    1, or 0 if the owner's word does not count

local key, now = KEYS[1], clock()
local owner, state, hold, ttl = ARGV[1], ARGV[2], ARGV[3] + 0, ARGV[4] + 0
local result = ARGV[5] ~= '' and ARGV[6] or nil

local text = fetch(key)

-- The record as the claim left it: nearly always. Without this the rules below come to the same, but take twice as long.
if text == ARGV[7] and string.sub(text, 1, 2) == '1r' then
  local expires, lengths_end = now + ttl, string.find(text, '\n', 52, true)
  local head = '1' .. state .. string.sub(text, 3, 19) .. string.format('%016.0f', expires)
  local lengths = string.sub(text, 52, lengths_end - 1) .. ARGV[5]
  put(key, head .. lengths .. string.sub(text, lengths_end) .. ARGV[6], expires)
  return 1
end

local function finish(record)
  record.state, record.expires, record.result = state, now + ttl, result
  if record.flags > '3' then record.flags = record.flags - 4 end -- no longer consumed
  write(key, record)
  return 1
end

-- Whether the store went back to before the claim: it lost what was written last, and fences only grow. What is done or
-- failed stays.
local function is_older(record, claimed)
  return record.fence < claimed.fence and (record.state == 'i' or record.state == 'r')
end

local function may_follow(record)
  if record.state == 'r' then return true end
  if record.flags > '3' then return state == 'i' or state == 'f' end
  return record.state == 'd' and state == 'd' and not record.result
end

local record = read(text, now)
if record == false then return 0 end
if not record or record.owner ~= owner then
  -- To restore or extend what is lost writes nothing: the late copy of such a command would occupy the key. But an
  -- effect that happened, or half happened, is recorded anew.
  local claimed = parse(ARGV[7])
  if claimed and (not record or is_older(record, claimed)) then return finish(claimed) end
  return record and 0 or 1
end
if record.state == state and state ~= 'r' and not (result and not record.result) then
  -- The same command again. Another result under the same owner is none.
  return (result == nil or result == record.result) and 1 or 0
end
if not may_follow(record) then return 0 end
if state == 'i' then
  if record.issued == '' or now >= record.issued + 0 then
    redis.call('DEL', key)
    return 1
  end
  record.state, record.expires, record.fingerprint, record.result = 'i', record.issued + 0, '', nil
  record.flags = '0'
elseif state == 'r' then
  record.held, record.expires = now + hold, end_of_claim(record.issued, record.expires, now, hold, ttl)
else
  return finish(record)
end
write(key, record)
return 1
