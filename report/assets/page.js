// What a page does when it is used: colours, details of kernels and plans, sorting, search, keys. Texts of the program
// are only ever set as text, never as markup.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const report = JSON.parse($("#report-data").textContent);

  // Sizes are texts already.
  for (const list of ["steps", "residuals", "budget"]) {
    report[list].forEach((row, k) => { row.texts = report.texts[list][k]; });
  }

  const scaled = (x, units) => {
    let y = Math.abs(x), k = 0;
    while (y >= 1000 && k + 1 < units.length) { y /= 1000; k += 1; }
    const digits = y >= 100 ? 0 : y >= 10 ? 1 : 2;
    return `${x < 0 ? "\u2212" : ""}${y.toFixed(digits)} ${units[k]}`;
  };
  const count = (n) => (n < 1000 ? String(n) : scaled(n, ["", "k", "M", "G", "T", "P"]));
  const seconds = (s) => (s === 0 ? "0 s" : Math.abs(s) >= 1 ? `${s.toPrecision(3)} s` : scaled(s * 1e9, ["ns", "\u00b5s", "ms"]));
  const signed = (text, x) => (x > 0 ? `+${text}` : text);

  // The switch of colours: the reader's system, until it is pressed.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const button = $("#theme");
  const shown = () => document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
  const named = () => {
    const isDark = shown() === "dark";
    button.textContent = isDark ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(isDark));
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = shown() === "dark" ? "light" : "dark";
    named();
  });
  dark.addEventListener("change", named);
  named();

  // A list of terms with their texts, in a place of its own.
  const fill = (place, title, rows) => {
    const heading = document.createElement("h3");
    heading.textContent = title;
    const list = document.createElement("dl");
    for (const [term, text] of rows) {
      if (text === "" || text === null || text === undefined) continue;
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = term;
      const lines = Array.isArray(text) ? text : [text];
      if (lines.length === 0) continue;
      lines.forEach((line, k) => {
        if (k > 0) dd.append(document.createElement("br"));
        dd.append(line);
      });
      list.append(dt, dd);
    }
    place.replaceChildren(heading, list);
  };

  const few = (names, most) => (names.length <= most ? names.join(", ") : `${names.slice(0, most).join(", ")} and ${names.length - most} more`);
  const instead = (r) => {
    if (!r.instead) return `${r.value}: ${r.decision}, ${r.texts.bytes} (${r.why})`;
    const { decision, seconds: s, priced_for: like } = r.instead;
    const other = decision === "remat" ? "computed again" : "kept";
    return `${r.value}: ${r.decision}${r.bits ? ` in ${r.bits} bit${r.bits === 1 ? "" : "s"}` : ""}, ${r.texts.bytes}; ${other} instead: time ${signed(seconds(s), s)}, peak ${r.texts.peak}${like ? ` (as ${like} of an equal layer)` : ""}`;
  };

  const showStep = (n) => {
    const s = report.steps[n];
    if (!s) return;
    const layer = report.layers.find((l) => n >= l.first && n < l.first + l.period * l.count);
    const ratio = s.limit > 0 ? ` (${(s.seconds / s.limit).toFixed(1)} times what its bytes and operations need)` : "";
    const m = s.measured;
    fill($("#step-detail"), `Step ${n}: ${s.label} ${s.result}`, [
      ["kernel", `${s.kind} ${s.name}, over ${s.domain || "1"}${s.shared ? ", shared by forward and backward" : ""}`],
      ["layer", layer ? `${layer.name}, ${layer.count} times from step ${layer.first}` : ""],
      ["time, predicted", `${seconds(s.seconds)}, bound by ${s.bound}${ratio}`],
      ["time, measured", m ? `${seconds(m.seconds)}, by ${m.generator}${m.registers ? `, ${m.registers} registers a thread` : ""}${s.texts.local ? `, ${s.texts.local} local memory` : ""}` : ""],
      ["moves", `${s.texts.read} read, ${s.texts.written} written, ${count(s.ops)} operations, ${s.launches} launch${s.launches === 1 ? "" : "es"}`],
      ["reads", few(s.reads, 24)],
      ["writes", few(s.writes, 24)],
      ["computes", s.computes.slice(0, 40)],
      ["source lines", s.lines.length ? few(s.lines, 40) : ""],
      ["kept for later", report.residuals.filter((r) => r.from === n && r.saved > 0).map(instead)],
      ["needs of before", report.residuals.filter((r) => r.to.includes(n) && r.decision !== "parameter" && r.from !== null).slice(0, 12).map(instead)],
      ["why apart", s.why],
    ]);
    all(".step.chosen, .arrow.chosen").forEach((e) => e.classList.remove("chosen"));
    all(`.step[data-step="${n}"]`).forEach((e) => e.classList.add("chosen"));
    all(`.arrow[data-from="${n}"], .arrow[data-to="${n}"]`).forEach((e) => e.classList.add("chosen"));
  };

  const showPoint = (k) => {
    const p = report.budget[k];
    if (!p) return;
    const own = report.figures.find((f) => f.key === "seconds").fused;
    const change = (a, b) => signed(`${((a / b - 1) * 100).toFixed(1)} %`, a - b);
    fill($("#point-detail"), p.chosen ? "The plan of this report" : `A plan within ${p.texts.peak}`, [
      ["memory", `${p.texts.peak} (${change(p.peak, report.held)})`],
      ["time of a step", `${seconds(p.seconds)} (${change(p.seconds, own)}), predicted`],
      ["saved for later phases", p.texts.saved],
      ["computed again", p.recomputed.length ? few(p.recomputed.map((v) => (v.times > 1 ? `${v.value} (${v.times}\u00d7)` : v.value)), 60) : "nothing"],
      ["segments and loops", p.rewrites.join(", ")],
      ["to get it", `--mem-budget ${p.peak}`],
    ]);
    all(".budget-point.shown").forEach((e) => e.classList.remove("shown"));
    all(`.budget-point[data-point="${k}"]`).forEach((e) => e.classList.add("shown"));
  };

  // One element of a picture is in the order of tabulation; arrows go on from there.
  const roving = (selector, key, show) => {
    const items = all(selector).sort((a, b) => a.dataset[key] - b.dataset[key]);
    items.forEach((item, at) => {
      item.addEventListener("click", () => show(Number(item.dataset[key])));
      item.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        const to = event.key === "Home" ? 0 : event.key === "End" ? items.length - 1 : step && at + step;
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          show(Number(item.dataset[key]));
        } else if (to !== undefined && items[to]) {
          event.preventDefault();
          item.setAttribute("tabindex", "-1");
          items[to].setAttribute("tabindex", "0");
          items[to].focus();
          show(Number(items[to].dataset[key]));
        }
      });
    });
  };
  roving(".step", "step", showStep);
  roving(".budget-point", "point", showPoint);
  for (const item of all(".hit, .kernel, .measured, #kernels tr[data-step]")) {
    item.addEventListener("click", () => {
      showStep(Number(item.dataset.step));
      $("#step-detail").scrollIntoView({ block: "center" });
    });
  }
  for (const row of all("#budget-points tr[data-point]")) row.addEventListener("click", () => showPoint(Number(row.dataset.point)));

  // Tables are sorted by a click on a head: numbers by their values, the largest first.
  for (const table of all("table.sortable")) {
    all("thead th", table).forEach((head, column) => {
      const press = document.createElement("button");
      press.type = "button";
      press.textContent = head.textContent;
      head.replaceChildren(press);
      press.addEventListener("click", () => {
        const numeric = head.classList.contains("n");
        const before = head.getAttribute("aria-sort");
        const order = before ? (before === "descending" ? "ascending" : "descending") : numeric ? "descending" : "ascending";
        const sign = order === "ascending" ? 1 : -1;
        const value = (row) => (numeric ? Number(row.cells[column].dataset.v ?? -Infinity) : row.cells[column].textContent);
        const compare = (a, b) => (a < b ? -sign : a > b ? sign : 0);
        const body = table.tBodies[0];
        body.append(...[...body.rows].sort((a, b) => compare(value(a), value(b))));
        all("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
      });
    });
  }

  const filter = $("#candidate-filter"), apart = $("#candidate-apart"), found = $("#candidate-count");
  if (filter) {
    const rows = all("#candidate-rows tbody tr");
    const apply = () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shownRows = 0;
      for (const row of rows) {
        const names = row.dataset.values.toLowerCase().split(" ");
        const text = row.textContent.toLowerCase();
        // A name in full is that value; other words may be anywhere.
        const fits = (word) => (word.startsWith("%") ? names.some((name) => name.startsWith(word)) : text.includes(word));
        const isShown = words.every(fits) && !(apart.checked && row.dataset.fused === "true");
        row.hidden = !isShown;
        shownRows += isShown ? 1 : 0;
      }
      found.textContent = `${shownRows} of ${rows.length}`;
    };
    filter.addEventListener("input", apply);
    apart.addEventListener("change", apply);
    apply();
  }
  addEventListener("beforeprint", () => all("details").forEach((d) => { d.open = true; }));
})();
