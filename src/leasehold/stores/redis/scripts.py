"""The Lua of ownership and checkpoints in Redis: each script is one request, and the server runs it alone.

A record is one field of a hash, its parts divided by line feeds, which their JSON never holds:

    ownership    ETag, time of the last write, JSON of owner id and level, JSON of the rest
    presence     ETag, time made, time of the last write, JSON of the rest
    checkpoint   owner level, sequence number, JSON of the offset, and, if there is any, that of a user's data

Times are microseconds of the server's clock. Owner levels and sequence numbers stay text, since a number in
Lua is exact only up to 2^53.
"""

from __future__ import annotations

from leasehold.stores.redis.server import Script

_NOW = """
local time = redis.call('TIME')
local now = time[1] .. string.format('%06d', tonumber(time[2]))
"""

LIST = Script(
    _NOW
    + """
return {now, redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3])}
"""
)

WRITE = Script(
    _NOW
    + r"""
-- ARGV: how; owner id, ETag and values of a presence, or empty; then partition, expected, ETag, identity, values
local how = ARGV[1]
if ARGV[3] ~= '' then
    local old = redis.call('HGET', KEYS[2], ARGV[2])
    local created = old and old:match('^[^\n]*\n(%d+)\n') or now
    if #created > 17 then created = now end
    redis.call('HSET', KEYS[2], ARGV[2], ARGV[3] .. '\n' .. created .. '\n' .. now .. '\n' .. ARGV[4])
end
local won = {}
for i = 5, #ARGV, 5 do
    local expected, identity = ARGV[i + 1], ARGV[i + 3]
    local old = redis.call('HGET', KEYS[1], ARGV[i])
    local fits
    if expected == '' then
        fits = not old and how == 'claim'
    else
        fits = old and old:sub(1, #expected) == expected
        if fits and how == 'renew' then
            fits = old:match('^[^\n]*\n[^\n]*\n([^\n]*)') == identity
        end
    end
    if fits then
        redis.call('HSET', KEYS[1], ARGV[i],
            ARGV[i + 2] .. '\n' .. now .. '\n' .. identity .. '\n' .. ARGV[i + 4])
        won[#won + 1] = (i - 5) / 5
    end
end
return {now, won}
"""
)

BRING_BACK = Script(
    _NOW
    + r"""
-- After the clock has stepped back, a record from the future counts as written now.
for number, pattern in ipairs({'^([^\n]*\n)(%d+)(.*)$', '^([^\n]*\n[^\n]*\n)(%d+)(.*)$'}) do
    local all = redis.call('HGETALL', KEYS[number])
    for i = 1, #all, 2 do
        local before, written, after = all[i + 1]:match(pattern)
        if written and tonumber(written) > tonumber(now) then
            redis.call('HSET', KEYS[number], all[i], before .. now .. after)
        end
    end
end
return now
"""
)

WITHDRAW_ASKS = Script(
    """
for i = 1, #ARGV, 2 do
    if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
        redis.call('HDEL', KEYS[1], ARGV[i])
    end
end
"""
)

_CHECKPOINTS = r"""
-- Whether one whole number, as text, is below another; numbers below 0 begin with a minus.
local function below(a, b)
    local negative, other = a:sub(1, 1) == '-', b:sub(1, 1) == '-'
    if a == b then return false end
    if negative ~= other then return negative end
    if #a ~= #b then return (#a < #b) ~= negative end
    return (a < b) ~= negative
end
-- Whether a text is a whole number, spelled as such, that a record may hold.
local function within(text, least)
    local digits = text:match('^%-?([1-9]%d*)$')
    return (digits or text == '0') and not below(text, least) and not below('9223372036854775807', text)
end
-- Whether a text is the JSON of text or null, as it is written here: in ASCII.
local function is_offset(json)
    if json == 'null' then return true end
    local fine, value = pcall(cjson.decode, json)
    return fine and type(value) == 'string' and not json:find('[\128-\255]')
end
-- Whether what follows the offset is nothing, or another line, which is the JSON of texts by text.
local function is_data(line)
    if line == '' then return true end
    local json = line:match('^\n({[^\n\128-\255]*})$')
    local fine, value = pcall(cjson.decode, json or '')
    if not fine or type(value) ~= 'table' or #json > 2048 then return false end
    for _, text in pairs(value) do
        if type(text) ~= 'string' then return false end
    end
    return true
end
-- Whether there is a record, and what it says where it can be read.
local function read(partition)
    local record = redis.call('HGET', KEYS[1], partition)
    if record then
        local level, sequence_number, offset, data = record:match('^(%d+)\n(%-?%d+)\n([^\n]*)(.*)$')
        if level and within(level, '0') and within(sequence_number, '-1') and is_offset(offset) and is_data(data) then
            return true, level, sequence_number, offset .. data
        end
    end
    return record
end
local function write(partition, level, sequence_number, offset)
    redis.call('HSET', KEYS[1], partition, level .. '\n' .. sequence_number .. '\n' .. offset)
end
"""

RAISE_OWNER_LEVEL = Script(
    _CHECKPOINTS
    + r"""
for i = 1, #ARGV, 4 do
    local there, level, sequence_number, offset = read(ARGV[i])
    if not there then
        write(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
    elseif level and below(level, ARGV[i + 1]) then
        write(ARGV[i], ARGV[i + 1], sequence_number, offset)
    end
end
local stands = {}
for i = 1, #ARGV, 4 do
    stands[#stands + 1] = redis.call('HGET', KEYS[1], ARGV[i])
end
return stands
"""
)

UPDATE_CHECKPOINTS = Script(
    _CHECKPOINTS
    + r"""
local refused = {}
for i = 1, #ARGV, 4 do
    local _, level, sequence_number = read(ARGV[i])
    if level and (below(ARGV[i + 1], level)
            or (ARGV[i + 1] == level and below(ARGV[i + 2], sequence_number))) then
        refused[#refused + 1] = {(i - 1) / 4, level, sequence_number}
    else
        write(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
    end
end
return refused
"""
)

BIND = Script(
    """
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return redis.call('GET', KEYS[1])
"""
)
