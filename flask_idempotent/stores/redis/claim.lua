-- Decide one claim, as machine.claim does.
--
-- KEYS[1]  the record
-- ARGV     owner, lease, ttl (microseconds), flags (1 must exist, 2 may not be taken over, 4 consume),
--          binding, scene, fingerprint
-- Reply    'word now packed': claimed, absent or the verdict; microseconds; the record, or nothing. One text, since a list
--          takes the server longer.

local key, now = KEYS[1], clock()
local owner, lease, ttl, flags = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local binding, scene, fingerprint = ARGV[5], ARGV[6], ARGV[7]
local must_exist, stays, consume = flags % 2 == 1, flags % 4 > 1, flags > 3

local function verdict_of(state)
  return state == 'd' and 'done' or state == 'f' and 'failed' or 'running'
end

local function reply(word, text)
  return word .. string.format(' %.0f ', now) .. text
end

-- The first rule that speaks against the claim; nil also for an owner who asks again.
local function refusal(record)
  if record.binding ~= binding or (record.scene ~= '' and record.scene ~= scene) then return 'foreign' end
  if record.fingerprint ~= '' and fingerprint ~= '' and record.fingerprint ~= fingerprint then return 'reused' end
  if record.owner == owner then
    -- Its reply was lost and the driver asked again: still mine. Once it is settled, a late copy occupies nothing.
    if record.state == 'r' or record.consumed then return nil end
    return verdict_of(record.state)
  end
  if now < record.held then return verdict_of(record.state) end
  -- Its worker died half-way and restore is off: nobody knows what happened, people reconcile it.
  if record.state == 'r' and record.stays then return 'failed' end
  return nil
end

local record, text = read(key, now)
if record == false then return reply('damaged', '') end
if record then
  local verdict = refusal(record)
  if verdict then return reply(verdict, text) end
  if record.owner == owner then return reply('claimed', text) end
elseif must_exist then
  return reply('absent', '')
else
  record = {state = 'i', fence = 0, expires = 0, issued = 0, binding = binding, scene = scene}
end

record.taken, record.state = record.state == 'r', consume and 'd' or 'r'
record.fence = math.max(now, record.fence + 1)
record.held, record.expires = now + lease, end_of_claim(record, now, lease, ttl) -- held is kept only while it runs
record.owner, record.fingerprint, record.result = owner, fingerprint, nil
record.stays, record.consumed = stays, consume
local _, claimed = write(key, record)
return reply('claimed', claimed)
