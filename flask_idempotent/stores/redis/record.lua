-- What the scripts share; glued in front of each when it is loaded.
--
-- Layout 1 of a record, one packed string:
--
--   1 STATE FLAGS FENCE,HELD,EXPIRES,ISSUED,OWNER,BINDING,SCENE,FINGERPRINT,RESULT\n texts
--
-- (without the blanks). STATE is i, r, d or f. FLAGS is a digit: 1 may not be taken over, 2 took over, 4 consumed.
-- FENCE to ISSUED are 16 digits, microseconds, or nothing: no fence; not running (an issued record is held until 0, a
-- finished one until it expires); expires when the token's own life ends; not a token. OWNER to RESULT are the lengths in
-- bytes of the texts that follow in this order; nothing is 0, but for RESULT: no result. Fixed widths, lengths that must
-- add up and the rules in parse() are what tells a damaged record: a lost digit must not read as "free".
--
-- Lua counts in doubles: exact for microseconds until the year 2255, but to be printed with %.0f only.

local HEADER = '^1([irdf])([0-7])(%d*),(%d*),(%d*),(%d*),(%d*),(%d*),(%d*),(%d*),(%d*)\n()'

local function number(digits)
  if digits == '' then return 0 end
  return #digits == 16 and tonumber(digits) or nil
end

local function length(digits)
  if digits == '' then return 0 end
  return #digits < 10 and tonumber(digits) or nil
end

-- The record as a table, or nil: damaged, or of another layout.
local function parse(text)
  local state, flags, fence, held, expires, issued, o, b, s, f, r, at = string.match(text, HEADER)
  if not at then return nil end
  local running, finished = state == 'r', state == 'd' or state == 'f'
  if (held ~= '') ~= running then return nil end
  local has_result = r ~= ''
  fence, held, issued = number(fence), number(held), number(issued)
  if expires == '' then expires = issued else expires = number(expires) end
  o, b, s, f, r = length(o), length(b), length(s), length(f), length(r)
  if not (fence and held and expires and issued and o and b and s and f and r) then return nil end
  if at + o + b + s + f + r ~= #text + 1 or expires == 0 or held > expires then return nil end
  if finished then held = expires end
  flags = tonumber(flags)
  local record = {
    state = state, fence = fence, held = held, expires = expires, issued = issued,
    stays = flags % 2 == 1, taken = flags % 4 > 1, consumed = flags > 3,
    owner = string.sub(text, at, at + o - 1),
    binding = string.sub(text, at + o, at + o + b - 1),
    scene = string.sub(text, at + o + b, at + o + b + s - 1),
    fingerprint = string.sub(text, at + o + b + s, at + o + b + s + f - 1),
    result = has_result and string.sub(text, at + o + b + s + f) or nil,
  }
  if state == 'i' then
    if flags > 0 or f > 0 or has_result or expires ~= issued then return nil end
  elseif o == 0 or (record.consumed and (state ~= 'd' or has_result)) then
    return nil
  end
  return record
end

local function digits(value)
  return value == 0 and '' or string.format('%016.0f', value)
end

local function size(text)
  return #text == 0 and '' or tostring(#text)
end

local function pack(r)
  local flags = (r.stays and 1 or 0) + (r.taken and 2 or 0) + (r.consumed and 4 or 0)
  return table.concat({
    '1', r.state, tostring(flags),
    digits(r.fence), ',', r.state == 'r' and digits(r.held) or '', ',',
    r.expires == r.issued and '' or digits(r.expires), ',', digits(r.issued), ',',
    size(r.owner), ',', size(r.binding), ',', size(r.scene), ',', size(r.fingerprint), ',',
    r.result and tostring(#r.result) or '', '\n',
    r.owner, r.binding, r.scene, r.fingerprint, r.result or '',
  })
end

-- The server's clock in microseconds.
local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- The live record under a key and its packed form; nil if there is none; false and '' if it is damaged, which a value
-- of another type is, too. The server drops records by the millisecond, expired is absent to the microsecond.
local function read(key, now)
  local text = redis.pcall('GET', key)
  if type(text) == 'table' then
    if string.find(tostring(text.err), 'WRONGTYPE', 1, true) then return false, '' end
    redis.call('GET', key) -- raises it
  end
  if not text then return nil end
  local record = parse(text)
  if not record then return false, text end
  if now >= record.expires then return nil end
  return record, text
end

-- Value and end in one command; the server's end is the next whole millisecond.
local function write(key, record, ...)
  local text = pack(record)
  return redis.call('SET', key, text, 'PXAT', string.format('%.0f', math.ceil(record.expires / 1000)), ...), text
end

-- A token lives to its own end, a key for its ttl; never less than it had, never less than two leases.
local function end_of_claim(record, now, lease, ttl)
  return math.max(record.issued > 0 and record.issued or now + ttl, record.expires, now + 2 * lease)
end
