"""A way to a local server that takes its time: `python slow_link.py PORT SECONDS`, in a process of its own.

Whatever comes is passed on after this many seconds, each way, in order and however much there is: a distance, without a
narrow place. It says at which port it listens, and ends when its input does.
"""

from __future__ import annotations

import asyncio
import socket
import sys


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Pass on what comes, until there is nothing more."""
    loop = asyncio.get_running_loop()
    on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def arrive() -> None:
        while True:
            due, data = await on_the_way.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not data:
                writer.close()
                return
            writer.write(data)

    arriving = loop.create_task(arrive())
    data = b"-"
    while data:
        try:
            data = await reader.read(1 << 16)
        except OSError:
            data = b""
        on_the_way.put_nowait((loop.time() + seconds, data))
    await arriving


async def main(port: int, seconds: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        for one in (writer, back):
            one.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(_pass_on(reader, back, seconds), _pass_on(there, writer, seconds))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
