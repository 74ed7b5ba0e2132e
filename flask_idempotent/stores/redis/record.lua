-- What the scripts share; glued in front of each when it is loaded.
--
-- Layout 1 of a record, one packed string (without the blanks):
--
--   1 STATE FLAGS MOMENTS , OWNER , BINDING , SCENE , FINGERPRINT , RESULT \n texts
--
-- STATE     i, r, d or f
-- FLAGS     a digit: 1 may not be taken over, 2 took over, 4 consumed
-- MOMENTS   16 digits each, microseconds: the fence, until when it is held, when it expires, when the token's own life
--           ends. An issued record (held until 0) has no second and third, and no first before its first claim; a done
--           or failed one (held until it expires) has no second; a key has no fourth.
-- lengths   in bytes, of the texts that follow in this order; nothing stands for 0, but RESULT: for no result
--
-- Fixed widths, lengths that must add up and the rules in parse() are what tells a damaged record: a lost digit must not
-- read as "free". A token takes 51 bytes, which every allocator of the servers keeps in 56 or 64.
--
-- Lua counts in doubles: exact for microseconds until the year 2255, but to be printed with %.0f only.

local HEADER = '^1([irdf])([0-7])(%d+),(%d*),(%d*),(%d*),(%d*),(%d*)\n()'

-- The record as a table, or nil: damaged, or of another layout. Strings of digits are counted with as they are.
local function parse(text)
  local state, flags, run, o, b, s, f, r, at = string.match(text, HEADER)
  if not at or #o > 9 or #b > 9 or #s > 9 or #f > 9 or #r > 9 then return nil end
  local fence, held, expires, issued
  if state == 'r' then
    if #run ~= 64 and #run ~= 48 then return nil end
    fence, held, expires = string.sub(run, 1, 16) + 0, string.sub(run, 17, 32) + 0, string.sub(run, 33, 48) + 0
    issued = string.sub(run, 49)
  elseif state == 'i' then
    if #run ~= 16 and #run ~= 32 then return nil end
    fence, held, issued = 0, 0, string.sub(run, #run - 15)
    if #run == 32 then fence = string.sub(run, 1, 16) + 0 end
    expires = issued + 0
  else
    if #run ~= 32 and #run ~= 48 then return nil end
    fence, expires, issued = string.sub(run, 1, 16) + 0, string.sub(run, 17, 32) + 0, string.sub(run, 33)
    held = expires
  end
  if expires == 0 or held > expires then return nil end
  local owner = at + (o == '' and 0 or o) -- where each text ends
  local binding = owner + (b == '' and 0 or b)
  local scene = binding + (s == '' and 0 or s)
  local fingerprint = scene + (f == '' and 0 or f)
  if fingerprint + (r == '' and 0 or r) ~= #text + 1 then return nil end
  if state == 'i' then
    if flags ~= '0' or fingerprint > scene or r ~= '' then return nil end
  elseif owner == at or (flags > '3' and (state ~= 'd' or r ~= '')) then
    return nil
  end
  return {
    state = state, flags = flags, fence = fence, held = held, expires = expires, issued = issued,
    owner = string.sub(text, at, owner - 1),
    binding = string.sub(text, owner, binding - 1),
    scene = string.sub(text, binding, scene - 1),
    fingerprint = string.sub(text, scene, fingerprint - 1),
    result = r ~= '' and string.sub(text, fingerprint) or nil,
  }
end

local function moments(state, fence, held, expires)
  if state == 'r' then return string.format('%016.0f%016.0f%016.0f', fence, held, expires) end
  if state == 'i' then return fence > 0 and string.format('%016.0f', fence) or '' end
  return string.format('%016.0f%016.0f', fence, expires)
end

local function size(text)
  return text == '' and '' or #text
end

local function pack(r)
  local run = moments(r.state, r.fence, r.held, r.expires) .. r.issued
  local lengths = size(r.owner) .. ',' .. size(r.binding) .. ',' .. size(r.scene) .. ',' .. size(r.fingerprint) .. ','
  if r.result then lengths = lengths .. #r.result end
  local texts = r.owner .. r.binding .. r.scene .. r.fingerprint
  return '1' .. r.state .. r.flags .. run .. ',' .. lengths .. '\n' .. texts .. (r.result or '')
end

-- The server's clock in microseconds.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
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
local function read(text, now)
  if not text then return nil end
  local record = parse(text)
  if not record then return false end
  if now >= record.expires then return nil end
  return record
end

-- Value and end in one command; the server's end is the next whole millisecond.
local function put(key, text, expires, ...)
  return redis.call('SET', key, text, 'PXAT', string.format('%.0f', math.ceil(expires / 1000)), ...)
end

local function write(key, record)
  local text = pack(record)
  put(key, text, record.expires)
  return text
end

-- A token lives to its own end, a key for its ttl; never less than it had, never less than two leases.
local function end_of_claim(issued, expires, now, lease, ttl)
  return math.max(issued == '' and now + ttl or issued + 0, expires, now + 2 * lease)
end
