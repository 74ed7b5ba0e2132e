-- Give a claimed record a new state, as machine.settle does.
--
-- KEYS[1]  the record
-- ARGV     1 the claim's record, packed, to be written anew if the store has lost it ('' for i and r); 2 owner;
--          3 the terms: state (i restores, r extends, d, f), ttl and hold (16 digits each, microseconds), the same ttl in
--          whole milliseconds, a little more; 4 length of the result in bytes ('' for none), 5 result
-- Reply    1, or 0 if the owner's word does not count

local owner, state = ARGV[2], string.sub(terms, 1, 1)
local ttl, hold = string.sub(terms, 2, 17) + 0, string.sub(terms, 18, 33) + 0
local result = ARGV[4] ~= '' and ARGV[5] or nil

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

local record = read(fetch(key), now)
if record == false then return 0 end
if not record or record.owner ~= owner then
  -- To restore or extend what is lost writes nothing: the late copy of such a command would occupy the key. But an
  -- effect that happened, or half happened, is recorded anew.
  local claimed = parse(ARGV[1])
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
