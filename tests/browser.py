"""A headless Chromium driven by the WebDriver protocol, with the standard library alone."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key under which the protocol hands over an element
PATIENCE = 200  # seconds
KEYS = {
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "Left": "\ue012",
    "Up": "\ue013",
    "Right": "\ue014",
    "Down": "\ue015",
}


class Browser:
    """One browser with one page. Close it when done."""

    def __init__(self) -> None:
        driver, chromium = shutil.which("chromedriver"), shutil.which("chromium") or shutil.which("google-chrome")
        if not driver or not chromium:
            raise RuntimeError("chromium and chromedriver are needed: apt-get install chromium chromium-driver")
        self.process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        port = next(found[1] for line in self.process.stdout if (found := re.search(r"started successfully on port (\d+)", line)))
        self.address = f"http://127.0.0.1:{port}/session"
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
        ]
        options = {"binary": chromium, "args": flags}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        wanted["timeouts"] = {"script": 1000 * PATIENCE}  # axe looks at 20,000 elements of the longest page
        try:
            self.address += "/" + self.send("POST", "", capabilities={"alwaysMatch": wanted})["sessionId"]
        except BaseException:
            self.process.kill()
            raise

    def send(self, method: str, path: str, **body: Any) -> Any:
        data = json.dumps(body).encode() if method == "POST" else None
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE + 20) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def close(self) -> None:
        try:
            self.send("DELETE", "")
        finally:
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()

    def open(self, page: Path, anchor: str = "") -> None:
        self.send("POST", "/url", url="about:blank")  # a change of the anchor alone would not load the page again
        self.send("POST", "/url", url=page.resolve().as_uri() + anchor)

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a JavaScript function body."""
        return self.send("POST", "/execute/sync", script=script, args=list(arguments))

    def text(self, selector: str) -> str:
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def click(self, selector: str) -> None:
        element = self.send("POST", "/element", using="css selector", value=selector)[_ELEMENT]
        self.send("POST", f"/element/{element}/click")

    def type(self, selector: str, text: str) -> None:
        element = self.send("POST", "/element", using="css selector", value=selector)[_ELEMENT]
        self.send("POST", f"/element/{element}/value", text=text)

    def press(self, *keys: str) -> None:
        """Press keys one after another, wherever the focus is."""
        strokes = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self.send("POST", "/actions", actions=[{"type": "key", "id": "keyboard", "actions": strokes}])

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self.send("POST", "/goog/cdp/execute", cmd=command, params=parameters)

    def screen(self, width: int, height: int, *, dark: bool = False) -> None:
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.send("GET", "/screenshot")))

    def complaints(self) -> list[str]:
        """What the browser logged: errors of scripts, resources that it was not allowed to load."""
        return [entry["message"] for entry in self.send("POST", "/se/log", type="browser")]
