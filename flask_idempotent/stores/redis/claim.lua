-- Decide one claim, as machine.claim does.
--
-- KEYS[1]  the record
-- ARGV     1 owner, 2 binding, 3 scene, 4 fingerprint; 5 the terms: STATE and FLAGS of the claim, whether the record must
--          exist (0, 1), lease and ttl (16 digits each, microseconds; ttl is never less than two leases), the same ttl in
--          whole milliseconds, a little more; the lengths of the claim as a record has them, from the one of BINDING on:
--          6 of a token without a scene, 7 with the scene
-- Reply    what is claimed, packed; or 'word now packed': absent or the verdict; microseconds; the record, or nothing.
--          One text, since a list takes the server longer.

local state, flags = string.sub(terms, 1, 1), string.sub(terms, 2, 2)

local function verdict_of(record)
  return record.state == 'd' and 'done' or record.state == 'f' and 'failed' or 'running'
end

local function reply(word, about)
  return word .. string.format(' %.0f ', now) .. about
end

-- The first rule that speaks against the claim; nil also for an owner who asks again.
local function refusal(record)
  if record.binding ~= binding or (record.scene ~= '' and record.scene ~= scene) then return 'foreign' end
  if record.fingerprint ~= '' and fingerprint ~= '' and record.fingerprint ~= fingerprint then return 'reused' end
  if record.owner == owner then
    -- Its reply was lost and the driver asked again: still mine. Once it is settled, a late copy occupies nothing.
    if record.state == 'r' or record.flags > '3' then return nil end
    return verdict_of(record)
  end
  if now < record.held then return verdict_of(record) end
  -- Its worker died half-way and restore is off: nobody knows what happened, people reconcile it.
  if record.state == 'r' and record.flags % 2 == 1 then return 'failed' end
  return nil
end

text = fetch(key)
local record = read(text, now)
if record == false then return reply('damaged', '') end
if record then
  local verdict = refusal(record)
  if verdict then return reply(verdict, text) end
  if record.owner == owner then return text end
elseif must_exist then
  return reply('absent', '')
else
  record = {state = 'i', fence = 0, expires = 0, issued = '', binding = binding, scene = scene}
end

if record.state == 'r' then flags = flags + 2 end -- it takes over
record.state, record.flags = state, flags
record.fence = math.max(now, record.fence + 1)
record.held, record.expires = now + lease, end_of_claim(record.issued, record.expires, now, lease, ttl)
record.owner, record.fingerprint, record.result = owner, fingerprint, nil
return write(key, record)
