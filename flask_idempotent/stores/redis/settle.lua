-- Give a claimed record a new state, as machine.settle does.
--
-- KEYS[1]  the record
-- ARGV     owner, state (i restores, r extends, d, f), hold, ttl (microseconds), whether there is a result (0, 1), result,
--          packed record of the claim, to be written anew if the store has lost it ('' for i and r)
-- Reply    1, or 0 if the owner's word does not count; 2 if nothing was done because the packed record is needed

local key, now = KEYS[1], clock()
local owner, state, hold, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local result = state == 'd' and ARGV[5] == '1' and ARGV[6] or nil

local function finish(record)
  record.state, record.expires, record.result, record.consumed = state, now + ttl, result, false
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
  if record.consumed then return state == 'i' or state == 'f' end
  return record.state == 'd' and state == 'd' and not record.result
end

local record = read(key, now)
if record == false then return 0 end
if not record or record.owner ~= owner then
  -- To restore or extend what is lost writes nothing: the late copy of such a command would occupy the key. But an
  -- effect that happened, or half happened, is recorded anew.
  if ARGV[7] == '' and (state == 'd' or state == 'f') then return 2 end
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
