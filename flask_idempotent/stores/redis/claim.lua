-- Decide one claim, as machine.claim does.
--
-- KEYS[1]  the record
-- ARGV     owner, lease, ttl (microseconds), whether it must exist (0, 1), FLAGS of the claim, binding, scene, fingerprint,
--          then packed from the first length on: the texts of a token that fits, the texts of the claim
-- Reply    'claimed packed', or 'word now packed': absent or the verdict; microseconds; the record, or nothing. One text,
--          since a list takes the server longer.

local key, now = KEYS[1], clock()
local owner, lease, ttl, must_exist, flags = ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[4] == '1', ARGV[5]
local state = flags > '3' and 'd' or 'r'

local function verdict_of(record)
  return record.state == 'd' and 'done' or record.state == 'f' and 'failed' or 'running'
end

local function reply(word, text)
  return word .. string.format(' %.0f ', now) .. text
end

local text = fetch(key)

-- Nothing speaks against a new key, or against a token that nobody has claimed. Without this the rules below come to the
-- same, but take twice as long.
local issued = nil
if not text then
  if must_exist then return reply('absent', '') end
  issued = ''
elseif string.sub(text, 20) == ARGV[9] then
  issued = string.match(text, '^1i0(%d+),')
end
if issued and (issued == '' or (#issued == 16 and now < issued + 0)) then
  local expires = end_of_claim(issued, 0, now, lease, ttl)
  text = '1' .. state .. flags .. moments(state, now, now + lease, expires) .. issued .. ARGV[10]
  put(key, text, expires)
  return 'claimed ' .. text
end

local binding, scene, fingerprint = ARGV[6], ARGV[7], ARGV[8]

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

local record = read(text, now)
if record == false then return reply('damaged', '') end
if record then
  local verdict = refusal(record)
  if verdict then return reply(verdict, text) end
  if record.owner == owner then return 'claimed ' .. text end
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
return 'claimed ' .. write(key, record)
