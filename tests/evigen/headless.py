"""A headless Chromium driven over the DevTools protocol: open a page, click, press keys, measure, take a picture."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --disable-default-apps --disable-dev-shm-usage "
    "--hide-scrollbars --remote-debugging-port=0"
).split()
SIZES = {"desktop": (1280, 800, False), "phone": (390, 844, True)}


def find_chromium() -> str | None:
    return os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )


class Browser:
    def __init__(self, binary: str):
        import websocket

        self.profile = tempfile.mkdtemp(prefix="report-chromium-")
        self.process = subprocess.Popen(
            [binary, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port_file = pathlib.Path(self.profile, "DevToolsActivePort")
        until = time.monotonic() + 40
        while not (port_file.exists() and port_file.read_text().count("\n")):
            if self.process.poll() is not None or time.monotonic() > until:
                self.close()
                raise RuntimeError(f"chromium did not start (exit code {self.process.poll()})")
            time.sleep(0.05)
        port, path = port_file.read_text().split("\n")[:2]
        self.socket = websocket.create_connection(
            f"ws://127.0.0.1:{port}{path}", timeout=30, suppress_origin=True, http_no_proxy=["127.0.0.1"]
        )
        self.count, self.events = 0, []

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        shutil.rmtree(self.profile, ignore_errors=True)

    def send(self, method: str, session: str | None = None, **params):
        self.count += 1
        number = self.count
        self.socket.send(
            json.dumps(
                {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
            )
        )
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def open(self, url: str, size: str = "desktop", script: bool = True, dark: bool = False) -> Page:
        return Page(self, url, *SIZES[size], script=script, dark=dark)


class Page:
    """One tab. `errors` are console errors, policy violations and exceptions; `requests` every URL asked for."""

    def __init__(
        self, browser: Browser, url: str, width: int, height: int, mobile: bool, *, script: bool, dark: bool
    ):
        self.browser, self.width, self.height = browser, width, height
        self.target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.send("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile
        )
        self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        if not script:
            self.send("Emulation.setScriptExecutionDisabled", value=True)
        self.send("Page.navigate", url=url)
        self.wait(
            lambda: self.js("document.readyState") == "complete" and self.js("location.href") != "about:blank"
        )
        time.sleep(0.1)

    def send(self, method: str, **params):
        return self.browser.send(method, self.session, **params)

    def js(self, expression: str):
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, done, seconds: float = 20) -> None:
        until = time.monotonic() + seconds
        while not done():
            if time.monotonic() > until:
                raise AssertionError(f"waited {seconds} s in vain")
            time.sleep(0.03)

    def box(self, selector: str) -> dict:
        """x, y, w, h of the element's first line in the window."""
        return self.js(f"""(() => {{
              const r = document.querySelector({json.dumps(selector)}).getClientRects()[0];
              return {{x: r.x, y: r.y, w: r.width, h: r.height}};
            }})()""")

    def in_view(self, selector: str) -> bool:
        """The whole element lies within the window and is what is drawn at its own middle: not covered, not clipped."""
        return self.js(f"""(() => {{
              const e = document.querySelector({json.dumps(selector)});
              if (!e) return false;
              const b = e.getBoundingClientRect(), r = e.getClientRects()[0];
              const at = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);
              return b.top >= 0 && b.bottom <= innerHeight && b.left >= 0 && b.right <= innerWidth
                && !!at && (at === e || e.contains(at) || at.contains(e));
            }})()""")

    def click(self, selector: str) -> None:
        """A real mouse click on the middle of the element's first line, scrolled to if need be."""
        self.js(
            f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center', behavior: 'instant'}})"
        )
        time.sleep(0.05)
        b = self.box(selector)
        at = {"x": b["x"] + b["w"] / 2, "y": b["y"] + b["h"] / 2, "button": "left", "clickCount": 1}
        self.send("Input.dispatchMouseEvent", type="mousePressed", **at)
        self.send("Input.dispatchMouseEvent", type="mouseReleased", **at)
        time.sleep(0.15)

    def press(self, key: str) -> None:
        code = (
            {"code": "Key" + key.upper(), "windowsVirtualKeyCode": ord(key.upper())}
            if len(key) == 1
            else {"code": key}
        )
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, text=key if len(key) == 1 else "", **code)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, **code)
        time.sleep(0.1)

    def screenshot(self, path, full: bool = False) -> None:
        clip = {}
        if full:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            clip = {
                "clip": {"x": 0, "y": 0, "width": self.width, "height": size["height"], "scale": 1},
                "captureBeyondViewport": True,
            }
        pathlib.Path(path).write_bytes(
            base64.b64decode(self.send("Page.captureScreenshot", format="png", **clip)["data"])
        )

    def _events(self, method: str):
        self.js("1")  # drain the socket
        return [
            m["params"]
            for m in self.browser.events
            if m.get("method") == method and m.get("sessionId") == self.session
        ]

    @property
    def errors(self) -> list:
        return (
            [
                e["entry"]["text"]
                for e in self._events("Log.entryAdded")
                if e["entry"]["level"] in ("error", "warning")
            ]
            + [e["exceptionDetails"]["text"] for e in self._events("Runtime.exceptionThrown")]
            + [
                str(e["args"])
                for e in self._events("Runtime.consoleAPICalled")
                if e["type"] in ("error", "warning", "assert")
            ]
        )

    @property
    def requests(self) -> list[str]:
        return [e["request"]["url"] for e in self._events("Network.requestWillBeSent")]

    def close(self) -> None:
        self.browser.send("Target.closeTarget", targetId=self.target)
