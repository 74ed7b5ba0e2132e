-- Give a claimed record a new state, as machine.settle does.
--
-- KEYS[1]  the record
-- ARGV     owner, state (i restores, r extends, d, f), hold, ttl (microseconds), whether there is a result (0, 1), result,
--          packed record of the claim, to be written anew if it is gone ('' for i and r)
-- Reply    1, or 0 if the owner's word does not count

local key, now = KEYS[1], clock()
local owner, state, hold, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local result = ARGV[5] == '1' and ARGV[6] or nil

local function finish(record)
  record.state, record.expires, record.result, record.consumed = state, now + ttl, result, false
  write(key, record)
  return 1
end

local function may_follow(record)
  if record.state == 'r' then return true end
  if record.consumed then return state == 'i' or state == 'f' end
  return record.state == 'd' and state == 'd' and not record.result
end

local record = read(key, now)
if record == false then return 0 end
if record == nil then
  -- To restore or extend what is gone writes nothing: the late copy of such a command would occupy the key. But an
  -- effect that happened, or half happened, is recorded anew.
  if state == 'i' or state == 'r' then return 1 end
  return finish(parse(ARGV[7]))
end
if record.owner ~= owner then return 0 end
if record.state == state and state ~= 'r' and not (result and not record.result) then
  -- The same command again. Another result under the same owner is none.
  return (result == nil or result == record.result) and 1 or 0
end
if not may_follow(record) then return 0 end
if state == 'i' then
  if now >= record.issued then
    redis.call('DEL', key)
    return 1
  end
  record.state, record.expires, record.fingerprint, record.result = 'i', record.issued, '', nil
  record.stays, record.taken, record.consumed = false, false, false
elseif state == 'r' then
  record.held, record.expires = now + hold, end_of_claim(record, now, hold, ttl)
else
  return finish(record)
end
write(key, record)
return 1
