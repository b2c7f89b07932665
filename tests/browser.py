"""A headless Chromium, spoken to over its own debugging protocol: what a page asks for, complains of and looks like."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tornado.ioloop import IOLoop
from tornado.websocket import websocket_connect

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 60.0  # seconds for Chromium to start, and for every answer


@dataclass
class Seen:
    """What happened while a page was open."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    picture: bytes = b""
    overflow: int = 0  # pixels by which the page is wider than the window
    height: int = 0


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser of its own profile, gone when the body ends."""
    assert CHROMIUM
    with tempfile.TemporaryDirectory() as profile:
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
        quiet = ["--disable-background-networking", "--no-first-run", "--disable-dev-shm-usage"]
        process = subprocess.Popen(
            [*command, *quiet, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        loop = IOLoop(make_current=False)
        try:
            yield Browser(loop, _address(Path(profile, "DevToolsActivePort")))
        finally:
            process.terminate()
            process.wait(30)
            loop.close()


def _address(file: Path) -> str:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        lines = file.read_text().split() if file.exists() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.1)
    raise TimeoutError("Chromium did not start")


class Browser:
    """Opens pages one after another."""

    def __init__(self, loop: IOLoop, address: str) -> None:
        self._loop, self._address = loop, address

    def look(self, url: str, *, width: int, dark: bool) -> Seen:
        return self._loop.run_sync(lambda: self._look(url, width, dark), timeout=PATIENCE)

    async def _look(self, url: str, width: int, dark: bool) -> Seen:
        self._socket = await websocket_connect(self._address, max_message_size=2**30)
        self._number, self._seen, self._events = 0, Seen(), set()
        target = (await self._ask("Target.createTarget", "", url="about:blank"))["targetId"]
        session = (await self._ask("Target.attachToTarget", "", targetId=target, flatten=True))["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            await self._ask(f"{domain}.enable", session)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self._ask("Emulation.setEmulatedMedia", session, features=scheme)
        await self._size(session, width, 800)
        await self._ask("Page.navigate", session, url=url)
        while "Page.loadEventFired" not in self._events:
            self._note(json.loads(await self._socket.read_message()))
        seen = self._seen
        seen.height = await self._value(session, "document.documentElement.scrollHeight")
        seen.overflow = await self._value(session, "document.documentElement.scrollWidth") - width
        await self._size(session, width, min(seen.height, 16000))
        seen.picture = base64.b64decode((await self._ask("Page.captureScreenshot", session, format="png"))["data"])
        await self._ask("Target.closeTarget", "", targetId=target)
        self._socket.close()
        return seen

    async def _size(self, session: str, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self._ask("Emulation.setDeviceMetricsOverride", session, **size)

    async def _value(self, session: str, expression: str) -> Any:
        return (await self._ask("Runtime.evaluate", session, expression=expression))["result"]["value"]

    async def _ask(self, method: str, session: str, **parameters: Any) -> Any:
        self._number += 1
        question = {"id": self._number, "method": method, "params": parameters}
        await self._socket.write_message(json.dumps(question | ({"sessionId": session} if session else {})))
        while True:
            answer = json.loads(await self._socket.read_message())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        method, facts = event.get("method", ""), event.get("params", {})
        self._events.add(method)
        if method == "Network.requestWillBeSent":
            self._seen.requests.append(facts["request"]["url"])
        elif method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self._seen.complaints.append(json.dumps(facts))
