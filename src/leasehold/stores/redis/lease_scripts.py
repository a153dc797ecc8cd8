"""The Lua of leases in Redis: each script is one request, however many keys it names.

`sessions` is a hash from ids to the time until which a session lives (empty: for ever), its duration, and JSON of owner
and duration; `fence` is the last fence given; the fields of the hash `scopes` are the scopes' names; each scope is a
hash from keys to fence and session. Parts are divided by line feeds. Times are microseconds of the server's clock.

A fence is the time, or one more than the last if that is not less: so that also a server that has lost its last
second, or all of its data, gives higher ones than before, as long as its clock was not set back.

A session that cannot be read is dead, a lease that cannot be read is free, and a last fence that cannot be read
does not count: the next holder's higher fence refuses whoever held something, and nobody is kept from anything.
"""

from __future__ import annotations

from leasehold.stores.redis.server import Script

_SESSIONS = r"""
-- KEYS: sessions, fence, then scopes
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local function text(number) return string.format('%.0f', number) end
local known = {}
-- The parts of a session; nothing, if it cannot be read.
local function parts(session)
    local till, duration, rest = session:match('^(%d*)\n(%d*)\n(%[[^\n\128-\255]*%])$')
    if till and #till < 18 and #duration < 17 and (till == '') == (duration == '') then
        return till, duration, rest
    end
end
-- What a session is, while it is alive. Remove it when its time is over.
local function session_of(id)
    if known[id] ~= nil then return known[id] end
    local session = redis.call('HGET', KEYS[1], id)
    if session then
        local till, duration, rest = parts(session)
        if not till or (till ~= '' and tonumber(till) <= now) then
            redis.call('HDEL', KEYS[1], id)
            session = false
        elseif till ~= '' and tonumber(till) > now + tonumber(duration) then  -- the clock has stepped back
            session = text(now + tonumber(duration)) .. '\n' .. duration .. '\n' .. rest
            redis.call('HSET', KEYS[1], id, session)
        end
    end
    known[id] = session
    return session
end
local function beat(id)
    local session = session_of(id)
    if not session then return 0 end
    local till, duration, rest = parts(session)
    if till ~= '' then
        redis.call('HSET', KEYS[1], id, text(now + tonumber(duration)) .. '\n' .. duration .. '\n' .. rest)
    end
    return 1
end
local function next_fence()
    local last = tonumber((redis.call('GET', KEYS[2]) or ''):match('^%d+$') or 0)
    if last > 9e15 then last = 0 end  -- no number is exact there
    local fence = text(math.max(now, last + 1))
    redis.call('SET', KEYS[2], fence)
    return fence
end
-- The fence and the session of a lease; of one that cannot be read, none that is alive.
local function lease_of(record)
    local fence, id = record:match('^(%d+)\n([^\n]+)$')
    if fence and #fence < 17 then return fence, id end
    return '0', ''
end
local most = 2000  -- values for one command
-- The records of ARGV[first] to ARGV[last] in a scope.
local function read(scope, first, last)
    local records = {}
    for from = first, last, most do
        local to = math.min(from + most - 1, last)
        local some = redis.call('HMGET', scope, unpack(ARGV, from, to))
        for i = 1, #some do records[from + i - 1] = some[i] end
    end
    return records
end
local function write(scope, pairs)
    for from = 1, #pairs, most do
        redis.call('HSET', scope, unpack(pairs, from, math.min(from + most - 1, #pairs)))
    end
end
local function remove(scope, keys)
    for from = 1, #keys, most do
        redis.call('HDEL', scope, unpack(keys, from, math.min(from + most - 1, #keys)))
    end
end
"""

OPEN_SESSION = Script(
    _SESSIONS
    + r"""
-- ARGV: id, duration or empty, JSON
for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do session_of(id) end
local till = ARGV[2] == '' and '' or text(now + tonumber(ARGV[2]))
redis.call('HSET', KEYS[1], ARGV[1], till .. '\n' .. ARGV[2] .. '\n' .. ARGV[3])
"""
)

HEARTBEAT = Script(_SESSIONS + "return beat(ARGV[1])")

ACQUIRE = Script(
    _SESSIONS
    + r"""
-- KEYS[4]: scopes. ARGV: session, the scope's name, then keys, none of them twice
if not session_of(ARGV[1]) then return {'0', {}} end
local records, won, pairs = read(KEYS[3], 3, #ARGV), {}, {}
for i = 3, #ARGV do
    local record = records[i]
    if not record or not session_of(select(2, lease_of(record))) then won[#won + 1] = i - 3 end
end
if #won == 0 then return {'0', {}} end
redis.call('HSET', KEYS[4], ARGV[2], '')
local fence = next_fence()
local record = fence .. '\n' .. ARGV[1]
for _, number in ipairs(won) do
    pairs[#pairs + 1] = ARGV[number + 3]
    pairs[#pairs + 1] = record
end
write(KEYS[3], pairs)
return {fence, won}
"""
)

AS_THEY_SAY = Script(
    _SESSIONS
    + r"""
-- ARGV: how; session to hand to, or empty; then, for each group of leases: number of its scope, session, fence, how
-- many keys, keys. Returns the fence that changed leases have, and which keys were met, counted from 0.
local how, to = ARGV[1], ARGV[2]
local met, fence, number, at = {}, '0', 0, 3
if how == 'change' then
    if not session_of(to) then return {fence, met} end
    fence = next_fence()
end
while at <= #ARGV do
    local scope, session, count = KEYS[2 + tonumber(ARGV[at])], ARGV[at + 1], tonumber(ARGV[at + 3])
    local said = ARGV[at + 2] .. '\n' .. session
    local first, last = at + 4, at + 3 + count
    local alive
    if how == 'renew' then alive = beat(session) == 1 else alive = session_of(session) end
    local records, touched = alive and read(scope, first, last) or {}, {}
    for i = first, last do
        if records[i] == said then
            met[#met + 1] = number
            touched[#touched + 1] = ARGV[i]
            if how == 'change' then touched[#touched + 1] = fence .. '\n' .. to end
        end
        number = number + 1
    end
    if how == 'release' then remove(scope, touched) end
    if how == 'change' then write(scope, touched) end
    at = last + 1
end
return {fence, met}
"""
)

_HELD = r"""
-- ARGV: how, then keys, none of them twice. Returns what is held: number, fence, session's id, session, and for how
-- many microseconds more; after `clear` how many were removed.
local records, held, touched, free = read(KEYS[3], 2, #ARGV), {}, {}, {}
for i = 2, #ARGV do
    if records[i] then
        local fence, id = lease_of(records[i])
        local session = session_of(id)
        if session then
            local till = parts(session)
            held[#held + 1] = {i - 2, fence, id, session, till == '' and '' or text(tonumber(till) - now)}
        else
            free[#free + 1] = ARGV[i]
        end
        touched[#touched + 1] = ARGV[i]
    end
end
if ARGV[1] == 'break' then remove(KEYS[3], touched) end
if ARGV[1] == 'clear' then remove(KEYS[3], free) return #free end
return held
"""

HELD = Script(_SESSIONS + _HELD)
