-- Look at a record; writes nothing.
--
-- KEYS[1]  the record
-- Reply    {word, packed record or ''}; the word is absent, damaged or live

local text = fetch(KEYS[1])
local record = read(text, clock())
if record == nil then return {'absent', ''} end
return {record and 'live' or 'damaged', text}
