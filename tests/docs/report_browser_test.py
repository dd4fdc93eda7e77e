"""Opens the page of `lathe inspect --html` in headless Chromium and uses it: clicks, keys, theme.

usage: report_browser_test.py LATHE CHROMIUM
"""

import html
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ARGUMENTS = ["inspect", "--hidden", "2048", "--vocab", "4096", "--tokens", "64", "--arch", "sm_80", "--step", "logits"]

# What a reader would do; each answer goes into the element `answers` as JSON.
SCRIPT = """
<script>
addEventListener("load", () => {
  const answers = {};
  const [left, right] = ["left", "right"].map((id) => document.getElementById(id));
  const current = (pane) => pane.getAttribute("aria-activedescendant");
  const press = (pane, key) => pane.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }));
  answers.lines = left.children.length;
  answers.instructions = right.children.length;
  answers.hot = right.querySelectorAll(".hot").length;
  const linked = [...left.children].find((row) => row.classList.contains("has"));
  linked.click();
  answers.marked = right.querySelectorAll(".inner, .outer").length;
  answers.chain = document.getElementById("chain").textContent;
  right.children[5].click();
  answers.clicked = current(right);
  press(right, "ArrowDown");
  answers.afterDown = current(right);
  press(right, "End");
  answers.afterEnd = current(right);
  press(right, "Home");
  answers.afterHome = current(right);
  document.getElementById("hot").click();
  answers.atHot = document.getElementById(current(right)).classList.contains("hot");
  const file = document.getElementById("file");
  file.value = "PTX";
  file.dispatchEvent(new Event("change"));
  answers.ptx = left.textContent.includes(".entry");
  const dark = () => document.documentElement.dataset.theme;
  const before = dark();
  document.getElementById("theme").click();
  answers.themes = [before, dark()];
  answers.wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  const out = document.createElement("pre");
  out.id = "answers";
  out.textContent = JSON.stringify(answers);
  document.body.append(out);
});
</script>
</body>"""


def answers(lathe: str, chromium: str, folder: Path) -> dict[str, Any]:
    """Writes the page, uses it, and returns what the script saw."""
    page = folder / "report.html"
    environment = os.environ | {"LATHE_CACHE_DIR": str(folder / "cache")}
    subprocess.run([lathe, *ARGUMENTS, "--html", str(page)], check=True, env=environment)
    page.write_text(page.read_text().replace("</body>", SCRIPT))
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1366,768", "--dump-dom"]
    profile = f"--user-data-dir={folder / 'profile'}"
    done = subprocess.run(
        [chromium, *options, profile, page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    found = re.search(r'<pre id="answers">(.*?)</pre>', done.stdout, re.DOTALL)
    if not found:
        raise SystemExit(f"the page's script did not finish:\n{done.stderr}")
    seen: dict[str, Any] = json.loads(html.unescape(found[1]))
    return seen


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        seen = answers(sys.argv[1], sys.argv[2], Path(folder))
    print(seen)
    assert seen["lines"] > 10
    assert seen["ptx"], "the left side shows the PTX"
    assert sorted(seen["themes"]) == ["dark", "light"]
    assert not seen["wide"], "the page fits the width of a laptop"
    if seen["instructions"] > 0:
        assert seen["hot"] > 0
        assert seen["marked"] > 0, seen["chain"]
        assert seen["clicked"] == "right-5" and seen["afterDown"] == "right-6"
        assert seen["afterEnd"] == f"right-{seen['instructions'] - 1}" and seen["afterHome"] == "right-0"
        assert seen["atHot"]
    return 0


if __name__ == "__main__":
    sys.exit(main())
