"""TLS in front of a server that knows none: `tls_front.py PORT INNER_PORT CERTIFICATE KEY`."""

import asyncio
import contextlib
import ssl
import sys

PIECE = 65536


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
    writer.close()


async def serve(port: int, inner: int, certificate: str, key: str) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)

    async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server, server = await asyncio.open_connection("127.0.0.1", inner)
        await asyncio.gather(_carry(reader, server), _carry(to_server, writer))

    listener = await asyncio.start_server(joined, ["127.0.0.1", "127.0.0.2"], port, ssl=tls)
    await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]))
