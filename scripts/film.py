"""Plays a scenario in the real window, under Xvfb, and makes a moving picture of it. Called by scripts/film.sh.

    film.py LOKA SCENARIO OUT.webp [--list]

The scenario is JSON: `open` (files of the repository, copied beside each other), `keys` (people whose signing keys lie there, too),
`size` of the window in points, `steps`. A step has what it does, in the words of tests/scenarios (`click`, `drag`, `key`, `type`,
`path`), what has come of it then (`seen` and `gone`: a control; `wait`: a part of the state), a `caption` that stands from then on, and
`hold`, milliseconds that it is looked at. --list prints what can be touched at the end, to write the next step by.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from PIL import Image, ImageDraw, ImageFont

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT, DRAGGED, STRIP = 60, 6, 40
# Of the picture: README columns are some 850 wide, and twice that is for dense screens.
WIDTH = 1120
KEYS = {"Ctrl": "ctrl", "Shift": "shift", "Enter": "Return"}


class Window:
    def __init__(self, loka, folder, files, size):
        self.size, self.at, self.caption, self.frames = size, (size[0] // 2, size[1] // 2), "", []
        self.screen = subprocess.Popen(
            ["Xvfb", "-displayfd", "1", "-screen", "0", f"{size[0]}x{size[1]}x24", "-nolisten", "tcp"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.display = f":{self.screen.stdout.readline().strip()}"
        settings = folder / "settings"
        (settings / "loka").mkdir(parents=True)
        (settings / "loka/settings.json").write_text(json.dumps({"version": 1, "ground": "dark", "window": size}))
        away = {"WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XMODIFIERS"}
        environment = {key: value for key, value in os.environ.items() if key not in away}
        environment |= {
            "DISPLAY": self.display, "XDG_CONFIG_HOME": str(settings), "WGPU_BACKEND": "vulkan", "WINIT_X11_SCALE_FACTOR": "1",
            "LC_ALL": "C.UTF-8", "USER": "Ada",
        }  # fmt: skip
        self.program = subprocess.Popen(
            [loka, "open", "--drive", *files], cwd=folder, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.look()
        # There is no window manager to give it the keys.
        found = self.tool("search", "--sync", "--onlyvisible", "--pid", str(self.program.pid)).split()[0]
        self.tool("windowmove", found, "0", "0", "windowfocus", "--sync", found)

    def close(self):
        for child in (self.program, self.screen):
            child.terminate()
            child.wait()

    def tool(self, *arguments):
        environment = {**os.environ, "DISPLAY": self.display}
        return subprocess.run(["xdotool", *arguments], env=environment, check=True, capture_output=True, text=True).stdout

    def look(self):
        self.program.stdin.write("look\n")
        self.program.stdin.flush()
        return json.loads(self.program.stdout.readline())

    def until(self, what, ready):
        start = time.monotonic()
        while not ready(seen := self.look()):
            if time.monotonic() - start > LIMIT:
                listed = "\n".join(sorted(json.dumps(node) for node in seen["nodes"]))
                raise SystemExit(f"in vain: {what}\n{json.dumps(seen['state'])}\n{listed}")
            time.sleep(0.1)
        return seen

    def settle(self):
        first = self.look()["frame"]
        return self.until("a window at rest", lambda seen: seen["frame"] >= first + 4)

    def place(self, aim):
        """The middle of the one control that fits, when it stands still."""
        before = [None]

        def found(seen):
            usable = [node for node in seen["nodes"] if not node.get("disabled")]
            fits = [node for node in usable if is_part(aim, node)]
            now = fits[0]["bounds"] if len(fits) == 1 else None
            stands = now is not None and before[0] == now
            before[0] = now
            return stands

        self.until(f"one {aim} that can be used", found)
        left, top, right, bottom = before[0]
        return round((left + right) / 2), round((top + bottom) / 2)

    def shoot(self, milliseconds):
        environment = {**os.environ, "DISPLAY": self.display}
        taken = subprocess.run(["import", "-window", "root", "png:-"], env=environment, check=True, capture_output=True)
        self.frames.append((Image.open(io.BytesIO(taken.stdout)).convert("RGB"), self.at, self.caption, milliseconds))

    def point(self, at):
        self.at = at
        self.tool("mousemove", str(at[0]), str(at[1]))

    def glide(self, to):
        """A hand on its way, in two pictures."""
        for part in (0.5, 1.0):
            self.point((round(self.at[0] + part * (to[0] - self.at[0])), round(self.at[1] + part * (to[1] - self.at[1]))))
            self.settle()
            self.shoot(160)

    def step(self, step):
        self.caption = step.get("caption", self.caption)
        if "click" in step:
            self.glide(self.place(step["click"]))
            self.tool("click", "1")
        if "drag" in step:
            start = self.place(step["drag"]["from"])
            self.glide(start)
            self.tool("mousedown", "1")
            self.look()
            for part in range(1, DRAGGED + 1):
                self.point(tuple(round(a + part * by / DRAGGED) for a, by in zip(start, step["drag"]["by"])))
                self.settle()
                self.shoot(160)
            self.tool("mouseup", "1")
        if "key" in step:
            self.tool("key", "+".join(KEYS.get(key, key.lower() if len(key) == 1 else key) for key in step["key"].split("+")))
        if "type" in step:
            self.tool("type", "--delay", "20", "--", step["type"])
        if "path" in step:
            self.until("a dialog that asks for a file", lambda seen: any(is_path(node) for node in seen["nodes"]))
            self.tool("key", "ctrl+a")
            self.tool("type", "--delay", "20", "--", step["path"])
        if "seen" in step:
            self.until(step["seen"], lambda seen: any(is_part(step["seen"], node) for node in seen["nodes"]))
        if "gone" in step:
            self.until(step["gone"], lambda seen: not any(is_part(step["gone"], node) for node in seen["nodes"]))
        if "wait" in step:
            self.until(step["wait"], lambda seen: is_part(step["wait"], seen["state"]))
        self.settle()
        if step.get("hold"):
            self.shoot(step["hold"])


def is_path(node):
    return node.get("focused") and node.get("role") == "TextInput" and node.get("label") in ("Path", "Key")


def is_part(part, whole):
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and is_part(value, whole[key]) for key, value in part.items())
    return part == whole


def drawn(image, at, caption):
    """With the pointer, which a picture of the screen leaves out, and the caption below."""
    out = Image.new("RGB", (image.width, image.height + STRIP), "#101418")
    out.paste(image, (0, 0))
    draw = ImageDraw.Draw(out)
    x, y = at
    arrow = [(0, 0), (0, 17), (4, 13), (7, 20), (10, 19), (7, 12), (12, 12)]
    draw.polygon([(x + dx, y + dy) for dx, dy in arrow], fill="white", outline="black")
    draw.text((16, image.height + STRIP // 2), caption, fill="#e6e6e6", font=ImageFont.load_default(size=20), anchor="lm")
    return out.resize((WIDTH, round(out.height * WIDTH / out.width)), Image.Resampling.LANCZOS)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loka")
    parser.add_argument("scenario", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    scenario = json.loads(asked.scenario.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        folder = pathlib.Path(folder)
        names = [shutil.copy(ROOT / file, folder) and pathlib.Path(file).name for file in scenario["open"]]
        for name in scenario.get("keys", []):
            key = folder / f"{name.lower()}.key.json"
            subprocess.run([asked.loka, "key", "new", "--name", name, "--out", str(key)], check=True, stdout=subprocess.DEVNULL)
        # Files that lie beside the first are found by the program itself.
        window = Window(asked.loka, folder, names[:1], scenario["size"])
        ending.callback(window.close)
        for step in scenario["steps"]:
            window.step(step)
        if asked.list:
            seen = window.look()
            print(*sorted(json.dumps(node) for node in seen["nodes"]), json.dumps(seen["state"]), sep="\n")
        frames = [drawn(image, at, caption) for image, at, caption, _ in window.frames]
        times = [milliseconds for *_, milliseconds in window.frames]
    part = asked.out.with_suffix(".part.webp")
    frames[0].save(part, save_all=True, append_images=frames[1:], duration=times, loop=0, quality=70, method=4)
    part.replace(asked.out)
    print(f"{len(frames)} pictures, {sum(times) / 1000:.0f} s, {asked.out.stat().st_size} bytes: {asked.out}")


if __name__ == "__main__":
    main()
