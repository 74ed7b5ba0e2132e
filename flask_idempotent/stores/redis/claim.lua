-- Decide one claim, as machine.claim does.
--
-- KEYS[1]  the record
-- ARGV     owner, lease, ttl (microseconds), flags (1 must exist, 2 may not be taken over, 4 consume),
--          binding, scene, fingerprint
-- Reply    {word, now in microseconds, packed record or ''}; the word is claimed, absent, or the verdict

local key, now = KEYS[1], clock()
local owner, lease, ttl, flags = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local binding, scene, fingerprint = ARGV[5], ARGV[6], ARGV[7]
local must_exist, stays, consume = flags % 2 == 1, flags % 4 > 1, flags > 3
local VERDICTS = {i = 'running', r = 'running', d = 'done', f = 'failed'}

-- The first rule that speaks against the claim; nil also for an owner who asks again.
local function refusal(record)
  if record.binding ~= binding or (record.scene ~= '' and record.scene ~= scene) then return 'foreign' end
  if record.fingerprint ~= '' and fingerprint ~= '' and record.fingerprint ~= fingerprint then return 'reused' end
  if record.owner == owner then
    -- Its reply was lost and the driver asked again: still mine. Once it is settled, a late copy occupies nothing.
    if record.state == 'r' or record.consumed then return nil end
    return VERDICTS[record.state]
  end
  if now < record.held then return VERDICTS[record.state] end
  -- Its worker died half-way and restore is off: nobody knows what happened, people reconcile it.
  if record.state == 'r' and record.stays then return 'failed' end
  return nil
end

local record, text = read(key, now)
local time = string.format('%.0f', now)
if record == false then return {'damaged', time, ''} end
if record then
  local verdict = refusal(record)
  if verdict then return {verdict, time, text} end
  if record.owner == owner then return {'claimed', time, text} end
elseif must_exist then
  return {'absent', time, ''}
else
  record = {state = 'i', fence = 0, expires = 0, issued = 0, binding = binding, scene = scene}
end

local expires = end_of_claim(record, now, lease, ttl)
local _, claimed = write(key, {
  state = consume and 'd' or 'r',
  fence = math.max(now, record.fence + 1),
  held = now + lease, -- kept only while it runs
  expires = expires,
  issued = record.issued,
  owner = owner,
  binding = record.binding,
  scene = record.scene,
  fingerprint = fingerprint,
  stays = stays,
  taken = record.state == 'r',
  consumed = consume,
})
return {'claimed', time, claimed}
