-- What the scripts share; glued in when they are loaded.
--
-- Layout 1 of a record, one packed string (without the blanks):
--
--   1 STATE FLAGS MOMENTS , RESULT , BINDING , SCENE , FINGERPRINT , OWNER \n texts
--
-- STATE     i, r, d or f
-- FLAGS     a digit: 1 may not be taken over, 2 took over, 4 consumed
-- MOMENTS   16 digits each, microseconds: the fence; a moment and a span, whose sum is until when it is held; when it
--           expires; when the token's own life ends. An issued record has the last one only, and the fence once it was
--           claimed; a done or failed one is held until it expires, and has no fourth; a key has no fifth.
-- lengths   in bytes, of the texts that follow: binding, scene, fingerprint, owner, result; nothing stands for 0, but
--           RESULT: for no result
--
-- Fixed widths, lengths that must add up and the rules in parse() are what tells a damaged record: a lost digit must not
-- read as "free". A token takes 51 bytes, which every allocator of the servers keeps in 56 or 64.
--
-- Lua counts in doubles: exact for microseconds until the year 2255, but to be printed with %.0f only.

local HEADER = '^1([irdf])([0-7])(%d+),(%d*),(%d*),(%d*),(%d*),(%d*)\n()'

-- The record as a table, or nil: damaged, or of another layout. Strings of digits are counted with as they are.
local function parse(packed)
  local state, flags, run, r, b, s, f, o, at = string.match(packed, HEADER)
  if not at or #r > 9 or #b > 9 or #s > 9 or #f > 9 or #o > 9 then return nil end
  local fence, held, expires, issued
  if state == 'r' then
    if #run ~= 80 and #run ~= 64 then return nil end
    fence, held = string.sub(run, 1, 16) + 0, string.sub(run, 17, 32) + string.sub(run, 33, 48)
    expires, issued = string.sub(run, 49, 64) + 0, string.sub(run, 65)
  elseif state == 'i' then
    if #run ~= 16 and #run ~= 32 then return nil end
    fence, held, issued = 0, 0, string.sub(run, #run - 15)
    if #run == 32 then fence = string.sub(run, 1, 16) + 0 end
    expires = issued + 0
  else
    if #run ~= 64 and #run ~= 48 then return nil end
    fence, held = string.sub(run, 1, 16) + 0, string.sub(run, 17, 32) + string.sub(run, 33, 48)
    expires, issued = held, string.sub(run, 49)
  end
  if expires == 0 or held > expires then return nil end
  local binding = at + (b == '' and 0 or b) -- where each text ends
  local scene = binding + (s == '' and 0 or s)
  local fingerprint = scene + (f == '' and 0 or f)
  local owner = fingerprint + (o == '' and 0 or o)
  if owner + (r == '' and 0 or r) ~= #packed + 1 then return nil end
  if state == 'i' then
    if flags ~= '0' or fingerprint > scene or r ~= '' then return nil end
  elseif owner == fingerprint or (flags > '3' and (state ~= 'd' or r ~= '')) then
    return nil
  end
  return {
    state = state, flags = flags, fence = fence, held = held, expires = expires, issued = issued,
    binding = string.sub(packed, at, binding - 1),
    scene = string.sub(packed, binding, scene - 1),
    fingerprint = string.sub(packed, scene, fingerprint - 1),
    owner = string.sub(packed, fingerprint, owner - 1),
    result = r ~= '' and string.sub(packed, owner) or nil,
  }
end

local function size(text)
  return text == '' and '' or #text
end

local function pack(r)
  local run
  if r.state == 'r' then
    run = string.format('%016.0f%016.0f%016.0f%016.0f', r.fence, r.held, 0, r.expires)
  elseif r.state == 'i' then
    run = string.format('%016.0f', r.fence)
  else
    run = string.format('%016.0f%016.0f%016.0f', r.fence, r.expires, 0)
  end
  local lengths = size(r.binding) .. ',' .. size(r.scene) .. ',' .. size(r.fingerprint) .. ',' .. size(r.owner)
  local head = '1' .. r.state .. r.flags .. run .. r.issued .. ',' .. (r.result and #r.result or '') .. ',' .. lengths
  return head .. '\n' .. r.binding .. r.scene .. r.fingerprint .. r.owner .. (r.result or '')
end

-- The value under a key: false if there is none. A value of another type reads as damaged, as '' does.
local function fetch(key)
  local text = redis.pcall('GET', key)
  if type(text) == 'table' then
    if string.find(tostring(text.err), 'WRONGTYPE', 1, true) then return '' end
    redis.call('GET', key) -- raises it
  end
  return text
end

-- The live record; nil if there is none, false if it is damaged. The server drops records by the millisecond, expired is
-- absent to the microsecond.
local function read(packed, now)
  if not packed then return nil end
  local record = parse(packed)
  if not record then return false end
  if now >= record.expires then return nil end
  return record
end

-- Value and end in one command; the server's end is the next whole millisecond.
local function put(key, packed, expires, ...)
  return redis.call('SET', key, packed, 'PXAT', string.format('%.0f', math.ceil(expires / 1000)), ...)
end

local function write(key, record)
  local packed = pack(record)
  put(key, packed, record.expires)
  return packed
end

-- The server's clock in microseconds.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- A token lives to its own end, a key for its ttl; never less than it had, never less than two leases.
local function end_of_claim(issued, expires, now, lease, ttl)
  return math.max(issued == '' and now + ttl or issued + 0, expires, now + 2 * lease)
end
