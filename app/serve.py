"""The server: Streamlit's application on a socket of our own, to this machine only."""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import uvicorn
from starlette.middleware import Middleware
from streamlit import config, file_util
from streamlit.starlette import App
from streamlit.web.bootstrap import load_config_options

from pattern_studio import StudioError

from .frontend import Frontend
from .router import PAGES

HOST = "127.0.0.1"
BACKLOG = 128  # connections that wait for their turn
STOP = 3  # seconds that visitors' connections have to end


def serve(options: Mapping[str, object], script: Path) -> None:
    """Serve a script with Streamlit's options by name, until a signal ends it.

    Without `server.headless` a browser opens where there is a screen.

    Raises:
        StudioError: the port is taken or not ours to take.
    """
    load_config_options(dict(options))
    with listening(int(config.get_option("server.port"))) as door:
        address = f"http://localhost:{door.getsockname()[1]}"

        @asynccontextmanager
        async def life(_app: App) -> AsyncIterator[None]:
            print(f"Pattern Studio: {address}  (Ctrl+C stops it)", flush=True)
            if not config.get_option("server.headless"):
                webbrowser.open(address)
            yield

        front = Middleware(Frontend, root=Path(file_util.get_static_dir()), pages=[path for _, _, path, _ in PAGES])
        settings = uvicorn.Config(
            App(script, middleware=[front], lifespan=life),
            ws="websockets-sansio",
            ws_max_size=int(config.get_option("server.maxMessageSize")) << 20,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=STOP,
        )
        with suppress(KeyboardInterrupt):
            uvicorn.Server(settings).run(sockets=[door])


def listening(port: int) -> socket.socket:
    """A socket that listens on a port of this machine and sends what it is given at once.

    Small answers in two parts (headers, body) would else wait 40 ms each: the second part for the browser's word that
    it has the first, and that word for more to be said with it. asyncio only sees to this for sockets that name their
    protocol, and Streamlit's own don't; connections inherit the option from here.

    Raises:
        StudioError: the port is taken or not ours to take.
    """
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        door.bind((HOST, port))
        door.listen(BACKLOG)
    except OSError as error:
        door.close()
        raise StudioError(
            f"expected port {port} to be free, got: {error.strerror}; choose another with --port"
        ) from error
    door.setblocking(False)
    return door
