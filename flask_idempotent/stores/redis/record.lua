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

local function length(digits)
  if digits == '' then return 0 end
  return #digits < 10 and tonumber(digits) or nil
end

-- The fence, held until, expires and issued until, or nil if they do not go with the state.
local function moments(state, run)
  local t = {}
  for at = 1, #run, 16 do
    t[#t + 1] = tonumber(string.sub(run, at, at + 15))
  end
  if #run ~= 16 * #t then return nil end
  if state == 'i' then
    if #t == 1 then return 0, 0, t[1], t[1] end
    if #t == 2 then return t[1], 0, t[2], t[2] end
  elseif state == 'r' then
    if #t == 3 or #t == 4 then return t[1], t[2], t[3], t[4] or 0 end
  elseif #t == 2 or #t == 3 then
    return t[1], t[2], t[2], t[3] or 0
  end
  return nil
end

-- The record as a table, or nil: damaged, or of another layout.
local function parse(text)
  local state, flags, run, o, b, s, f, r, at = string.match(text, HEADER)
  if not at then return nil end
  local fence, held, expires, issued = moments(state, run)
  if not fence or expires == 0 or held > expires then return nil end
  local has_result = r ~= ''
  o, b, s, f, r = length(o), length(b), length(s), length(f), length(r)
  if not (o and b and s and f and r) or at + o + b + s + f + r ~= #text + 1 then return nil end
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
    if flags > 0 or f > 0 or has_result then return nil end
  elseif o == 0 or (record.consumed and (state ~= 'd' or has_result)) then
    return nil
  end
  return record
end

local function digits(moment)
  return string.format('%016.0f', moment)
end

local function size(text)
  return #text == 0 and '' or tostring(#text)
end

local function pack(r)
  local flags = (r.stays and 1 or 0) + (r.taken and 2 or 0) + (r.consumed and 4 or 0)
  return table.concat({
    '1', r.state, tostring(flags),
    (r.state ~= 'i' or r.fence > 0) and digits(r.fence) or '',
    r.state == 'r' and digits(r.held) or '',
    r.state ~= 'i' and digits(r.expires) or '',
    r.issued > 0 and digits(r.issued) or '', ',',
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
