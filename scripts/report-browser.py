#!/usr/bin/env python3
"""Opens report pages in headless Chromium: report-browser.py FOLDER PAGE.html..

Each page is used as a reader uses it: kernels and points are chosen by the mouse and by keys, tables are sorted and searched, colours are
switched. Pictures at three widths in both colours go to FOLDER, to be looked at. Exits with 1 if something fails or the console has an
error, and with 77 where there is no Chromium, which counts as not tried."""

import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = (400, 900, 1400)

# Runs in the page after its own script. Every check names what it looks at.
USE = r"""
addEventListener("load", () => {
  const failed = [];
  const check = (what, holds) => { if (!holds) failed.push(what); };
  const all = (selector) => [...document.querySelectorAll(selector)];
  const key = (element, name) => element.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
  const data = JSON.parse(document.getElementById("report-data").textContent);

  const detail = document.getElementById("step-detail");
  const boxes = all(".step").sort((a, b) => a.dataset.step - b.dataset.step);
  check("a box for a step", boxes.length > 0 || data.steps.length === 0);
  for (const box of boxes) {
    box.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    const step = data.steps[box.dataset.step];
    check(`step ${box.dataset.step}: title`, detail.querySelector("h3").textContent.startsWith(`Step ${box.dataset.step}: `));
    check(`step ${box.dataset.step}: what it writes`, step.writes.slice(0, 24).every((w) => detail.textContent.includes(w)));
    check(`step ${box.dataset.step}: why it is apart`, step.why.every((w) => detail.textContent.includes(w.trim())));
    check(`step ${box.dataset.step}: no markup of texts`, detail.querySelector("script, img") === null);
  }
  if (boxes.length > 1) {
    key(boxes[0], "ArrowRight");
    check("an arrow goes to the next box", document.activeElement === boxes[1] && detail.textContent.startsWith(`Step ${boxes[1].dataset.step}:`));
    check("one box is in the order of tabulation", all('.step[tabindex="0"]').length === 1 || boxes[0].getAttribute("tabindex") === "-1");
    key(boxes[1], "End");
    check("End goes to the last box", document.activeElement === boxes[boxes.length - 1]);
  }
  for (const point of all(".budget-point")) {
    point.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    const text = document.getElementById("point-detail").textContent;
    check(`point ${point.dataset.point}`, text.includes(`--mem-budget ${data.budget[point.dataset.point].peak}`));
  }
  for (const table of all("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells], count = table.tBodies[0].rows.length;
    heads.forEach((head, column) => {
      if (!head.classList.contains("n")) return;
      head.querySelector("button").click();
      const found = [...table.tBodies[0].rows].map((r) => Number(r.cells[column]?.dataset.v ?? -Infinity));
      check(`${table.id} sorted by ${head.textContent}`, found.every((v, k) => k === 0 || found[k - 1] >= v));
      check(`${table.id} keeps its rows`, table.tBodies[0].rows.length === count);
    });
  }
  const filter = document.getElementById("candidate-filter");
  if (filter) {
    const rows = all("#candidate-rows tbody tr");
    const shown = () => rows.filter((r) => !r.hidden).length;
    check("all candidates are shown", shown() === rows.length);
    filter.value = rows[0].dataset.values.split(" ")[0];
    filter.dispatchEvent(new Event("input"));
    check("a value is found", !rows[0].hidden && shown() >= 1);
    filter.value = "no such value";
    filter.dispatchEvent(new Event("input"));
    check("nothing is found", shown() === 0);
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
  }
  const ground = () => getComputedStyle(document.body).backgroundColor;
  const theme = document.getElementById("theme"), before = ground();
  theme.click();
  check("the switch changes colours", ground() !== before);
  theme.click();
  check("the switch changes back", ground() === before);

  for (const link of all("nav a, .answers a")) check(`link ${link.hash}`, document.querySelector(link.hash) !== null);
  const ids = all("[id]").map((e) => e.id);
  check("ids are unique", new Set(ids).size === ids.length);
  for (const svg of all("svg")) {
    check(`${svg.id} has a title`, svg.querySelector("title")?.textContent.length > 5);
    check(`${svg.id} has no broken numbers`, !/NaN|Infinity/.test(svg.outerHTML));
  }
  // Text on the page has a contrast of 4.5 at least in both colours.
  const part = (c) => { const x = c / 255; return x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; };
  const light = (rgb) => { const [r, g, b] = rgb.match(/[\d.]+/g).map(Number); return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b); };
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const behind = (e) => { for (let p = e; p; p = p.parentElement) { const c = getComputedStyle(p).backgroundColor; if (c !== "rgba(0, 0, 0, 0)") return c; } return "rgb(255, 255, 255)"; };
  for (const round of [0, 1]) {
    for (const e of all("p, dt, dd, th, td, li, a, h2, h3, small, .decision, .basis, button").slice(0, 800)) {
      const c = contrast(getComputedStyle(e).color, behind(e));
      check(`contrast of ${e.tagName}.${e.className} in ${document.documentElement.dataset.theme}: ${c.toFixed(1)}`, c >= 4.5);
    }
    theme.click();
  }
  const timing = performance.getEntriesByType("navigation")[0];
  const result = document.createElement("pre");
  result.id = "use-result";
  result.textContent = JSON.stringify({ failed: [...new Set(failed)], ready: timing.domContentLoadedEventEnd });
  document.body.append(result);
});
"""


def browser(binary, *args):
    """What a run of the browser prints, and what it logs."""
    with tempfile.TemporaryDirectory() as profile:
        command = [binary, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={profile}", "--enable-logging=stderr", *args]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return ran.stdout, ran.stderr


def used(binary, page):
    """What fails when a page is used, and the milliseconds until it was ready."""
    text = page.read_text()
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "page.html"
        copy.write_text(text.replace("</body>", f"<script>{USE}</script></body>"))
        dom, log = browser(binary, "--dump-dom", "--virtual-time-budget=10000", copy.as_uri())
    failed = [line for line in log.splitlines() if "CONSOLE" in line]
    found = re.search(r'<pre id="use-result">(.*?)</pre>', dom, re.S)
    if not found:
        return failed + ["the page has not been used to its end"], 0.0
    result = json.loads(html.unescape(found[1]))
    return failed + result["failed"], result["ready"]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    if binary is None:
        print("no Chromium: pages are not tried in a browser", file=sys.stderr)
        sys.exit(77)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for page in map(lambda p: pathlib.Path(p).resolve(), sys.argv[2:]):
        is_report = 'id="report-data"' in page.read_text()
        failed, ready = used(binary, page) if is_report else ([], 0.0)
        if page.stat().st_size > 2 << 20:
            failed.append(f"{page.stat().st_size} bytes")
        for width in WIDTHS:
            for name, scheme in (("light", 1), ("dark", 0)):
                picture = folder / f"{page.stem}-{width}-{name}.png"
                browser(binary, f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={width},3600", f"--screenshot={picture}", page.as_uri())
        print(f"{page.name}: {page.stat().st_size >> 10} KiB, ready after {ready:.0f} ms, {len(failed)} failures")
        for line in failed[:20]:
            print(f"  {line}")
        wrong += bool(failed)
    sys.exit(1 if wrong else 0)


main()
