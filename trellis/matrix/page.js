"use strict";
// All texts of the data reach the page as text nodes and attributes, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const [STEP, MOST] = [60, 600]; // rows drawn at first, of a table and of all: a page of 10,000 rows answers as fast as one of 50
const LETTERS = { p: "passed", f: "failed", c: "crashed", n: "not run", k: "known failure", u: "unexpected pass" };
const STATUSES = [...data.statuses, "unexpected pass"];
const RED = new Set(["failed", "crashed"]);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}
const kind = (status) => `s-${status.replace(" ", "-")}`;
function icon(status) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  made.setAttribute("class", "icon");
  made.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${status.replace(" ", "-")}`);
  made.append(use);
  return made;
}
const number = (n) => n.toLocaleString("en");
const plural = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;
const day = (date) => date.slice(0, 16).replace("T", " ");
const errorText = (e) => (e === undefined || e === null ? "" : e === 0 ? "0" : e.toExponential(1));
const seconds = (s) => (s >= 60 ? `${Math.floor(s / 60)} min ${Math.round(s % 60)} s` : s >= 1 ? `${s.toFixed(1)} s` : `${Math.round(s * 1000)} ms`);

// What a test is about: test_conv2d_transpose is "conv2d transpose", w is with. Names of another form stay.
const readable = (name) => (/^test_\w+$/.test(name) ? name.slice(5).replaceAll("_", " ").replace(/\bw\b/, "with").trim() || name : name);
// The cells in the order of tables, rows, backends.
const rows = [];
const cells = data.cells;
for (const [table, names] of Object.entries(data.tables)) {
  for (const name of names) {
    const row = { table, name, cells: [], drawn: null };
    data.backends.forEach((backend) => {
      const cell = cells[rows.length * data.backends.length + row.cells.length];
      Object.assign(cell, { row, backend, label: cell.unexpected ? "unexpected pass" : cell.status });
      row.cells.push(cell);
    });
    row.title = readable(name);
    row.text = [name, row.title, table, ...new Set(row.cells.map((cell) => cell.reason || ""))].join("\n").toLowerCase();
    rows.push(row);
  }
}
cells.forEach((cell, index) => { cell.index = index; });
const tables = Object.keys(data.tables);
const rowsOf = new Map(tables.map((table) => [table, []]));
rows.forEach((row) => rowsOf.get(row.table).push(row));

function tally(list) {
  const counts = Object.fromEntries(STATUSES.map((status) => [status, 0]));
  for (const cell of list) counts[cell.label] += 1;
  return counts;
}
function drawBar(bar, counts) {
  for (const status of STATUSES) {
    if (counts[status]) {
      const part = element("span", { class: kind(status) });
      part.style.flexGrow = counts[status];
      bar.append(part);
    }
  }
  return bar;
}

// Totals
const counts = tally(cells);
$("green").textContent = number(counts.passed);
$("of").textContent = `of ${number(cells.length)} cells passed`;
drawBar($("bar"), counts);
$("when").textContent = `Run on ${day(data.date)} UTC${data.duration ? ` in ${seconds(data.duration)}` : ""}`;
$("about").textContent = [data.commit && `Commit ${data.commit}`, `Python ${data.python}`, data.mode].filter(Boolean).join(" · ");
data.backends.forEach((backend, column) => {
  const own = cells.filter((cell) => cell.backend === backend);
  const versions = own.map((cell) => data.shared[cell.versions]).find(Boolean) || "";
  const version = versions.split(", ").find((each) => each.startsWith(`${backend} `))?.split(" ")[1] || "";
  const green = tally(own);
  $("columns").append(element("li", {}, element("b", {}, backend), element("span", { class: "version" }, version),
    element("span", { class: "share" }, number(green.passed), element("small", {}, ` of ${number(own.length)} passed`)),
    drawBar(element("div", { class: "bar", "aria-hidden": "true" }), green)));
});
$("foot").textContent = `Run ${data.id} on ${data.platform}. Errors are relative to the largest value expected. A test that compares nothing is shown as failed.`;

// Filters
const filter = { text: "", table: "", statuses: new Set(), backends: new Set() };
const limits = new Map();
const shownBackends = () => data.backends.filter((backend) => !filter.backends.size || filter.backends.has(backend));
function matches(row, shown) {
  if (filter.table && row.table !== filter.table) return false;
  if (filter.text && !row.text.includes(filter.text)) return false;
  if (!filter.statuses.size) return true;
  return row.cells.some((cell) => filter.statuses.has(cell.label) && shown.has(cell.backend));
}
function chip(name, set, status) {
  const button = element("button", {
    type: "button", class: `chip ${status ? kind(name) : ""} ${status && !counts[name] ? "none" : ""}`, "aria-pressed": "false", "data-name": name,
    onclick: () => { set.has(name) ? set.delete(name) : set.add(name); update(); },
  }, status ? icon(name) : null, name, status ? element("span", { class: "n" }, number(counts[name])) : null);
  return button;
}
STATUSES.forEach((status) => {
  if (status !== "unexpected pass" || counts[status]) $("statuses").append(chip(status, filter.statuses, true));
});
data.backends.forEach((backend) => $("backends").append(chip(backend, filter.backends, false)));
$("table").append(element("option", { value: "" }, "All tables"), ...tables.map((table) => element("option", { value: table }, table)));
$("table").hidden = tables.length < 2;
$("search").addEventListener("input", () => { filter.text = $("search").value.trim().toLowerCase(); update(); });
$("table").addEventListener("change", () => { filter.table = $("table").value; update(); });
$("tools").addEventListener("submit", (event) => event.preventDefault());
$("clear").addEventListener("click", clear);
function clear() {
  $("search").value = $("table").value = filter.text = filter.table = "";
  filter.statuses.clear();
  filter.backends.clear();
  update();
  $("search").focus();
}

// Tables
const link = (cell) => `#${[cell.row.table, cell.row.name, cell.backend].map(encodeURIComponent).join("/")}`;
function describe(cell) {
  const done = cell.comparisons ? (cell.comparisons === 1 ? " comparison," : " comparisons,") : "";
  return `${done} ${cell.row.name} on ${cell.backend}${cell.reason ? `, ${cell.reason}` : ""}`;
}
const numeric = (cell) => (cell.compared || []).filter((place) => place.error !== null && place.error !== undefined).reduce((sum, place) => sum + place.count, 0);
const linked = (address, text) => (address ? element("a", { href: address }, text) : text);
const commitLink = (commit) => linked(data.links.commits && commit && data.links.commits + encodeURIComponent(commit.replace(/\+$/, "")), commit || "");
function sourceLink(cell) {
  const path = cell.test.split("::")[0];
  return linked(data.links.tests && !path.includes("..") && data.links.tests + path.split("/").map(encodeURIComponent).join("/"), element("code", {}, cell.test));
}
const breakable = (name) => name.split(/(?<=_)(?=[^_])/).flatMap((part, i) => (i ? [element("wbr"), part] : [part]));
function drawRow(row, shown) {
  if (!row.drawn) {
    row.drawn = element("tr", { role: "row" }, element("th", { scope: "row", role: "rowheader", "aria-label": row.name, "data-row": row.name },
      row.title === row.name ? null : element("span", { class: "title" }, row.title), element("span", { class: "id" }, ...breakable(row.name))));
    row.buttons = row.cells.map((cell) => {
      const button = element("button", { type: "button", class: `cell ${kind(cell.label)}`, title: cell.reason || null, "data-cell": cell.index },
        icon(cell.label), element("span", { class: "word" }, cell.label),
        cell.comparisons ? element("span", { class: "n" }, number(cell.comparisons)) : null,
        element("span", { class: "where" }, cell.backend), element("span", { class: "unseen" }, describe(cell)));
      row.drawn.append(element("td", { role: "cell" }, button));
      return button;
    });
  }
  row.cells.forEach((cell, i) => {
    const [hidden, dim] = [!shown.has(cell.backend), filter.statuses.size > 0 && !filter.statuses.has(cell.label)];
    if (row.buttons[i].parentNode.hidden !== hidden) row.buttons[i].parentNode.hidden = hidden;
    if (row.buttons[i].classList.contains("dim") !== dim) row.buttons[i].classList.toggle("dim", dim);
  });
  return row.drawn;
}
const blocks = new Map();
tables.forEach((table, position) => {
  const body = element("tbody", { role: "rowgroup" });
  const id = `table-${position + 1}`;
  const total = element("p");
  const heads = data.backends.map((backend) => element("th", { scope: "col", role: "columnheader" }, backend));
  const more = element("button", { type: "button", class: "quiet", onclick: () => showMore(table) });
  const foot = element("div", { class: "more", hidden: true }, more);
  const wide = data.backends.length > 6;
  const block = element("section", { class: "block", "aria-labelledby": id },
    element("header", {}, element("h2", { id }, tables.length > 1 ? `Table ${position + 1}: ${table}` : table), total),
    element("div", { class: `frame${wide ? " wide" : ""}` },
      element("table", { class: `grid${wide ? " free" : ""}`, role: "table", "aria-labelledby": id },
        element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, element("th", { scope: "col", role: "columnheader" }, "test"), ...heads)), body), foot));
  blocks.set(table, { block, body, heads, total, more, foot });
  $("tables").append(block);
});
const nothing = element("p", { class: "empty", hidden: true }, "No row matches these filters.");
$("tables").append(nothing);

function update() {
  const backends = shownBackends();
  const shown = new Set(backends);
  let [found, left] = [0, MOST];
  for (const [table, parts] of blocks) {
    const matching = rowsOf.get(table).filter((row) => matches(row, shown));
    const limit = limits.get(table) ?? Math.min(STEP, left);
    left -= Math.min(limit, matching.length);
    found += matching.length;
    parts.block.hidden = !matching.length;
    parts.body.replaceChildren(...matching.slice(0, limit).map((row) => drawRow(row, shown)));
    parts.heads.forEach((head, i) => { head.hidden = !shown.has(data.backends[i]); });
    const all = matching.length * backends.length;
    let green = 0;
    for (const row of matching) for (const cell of row.cells) if (cell.label === "passed" && shown.has(cell.backend)) green += 1;
    parts.total.textContent = `${number(green)} of ${number(all)} passed`;
    parts.foot.hidden = matching.length <= limit;
    parts.more.textContent = `Show ${number(Math.min(500, matching.length - limit))} more of ${number(matching.length - limit)} rows`;
  }
  nothing.hidden = found > 0;
  for (const [box, set] of [[$("statuses"), filter.statuses], [$("backends"), filter.backends]]) {
    for (const button of box.querySelectorAll("button")) button.setAttribute("aria-pressed", String(set.has(button.dataset.name)));
  }
  const narrowed = filter.text || filter.table || filter.statuses.size || filter.backends.size;
  $("count").textContent = narrowed ? `${number(found)} of ${plural(rows.length, "row")}` : plural(rows.length, "row");
  $("clear").hidden = !narrowed;
}
function showMore(table) {
  const before = blocks.get(table).body.rows.length;
  limits.set(table, before + 500);
  update();
  blocks.get(table).body.rows[before]?.querySelector("button:not([hidden])")?.focus();
}
$("tables").addEventListener("click", (event) => {
  const button = event.target.closest("[data-cell]");
  if (button) open(cells[button.dataset.cell]);
});
$("tables").addEventListener("keydown", (event) => {
  const button = event.target.closest("[data-cell]");
  const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!button || !move) return;
  const lines = [...$("tables").querySelectorAll("tbody tr")].map((line) => [...line.querySelectorAll("td:not([hidden]) [data-cell]")]);
  const down = lines.findIndex((line) => line.includes(button));
  const next = lines[down + move[0]]?.[lines[down].indexOf(button) + move[1]];
  if (next) { next.focus(); event.preventDefault(); }
});

// Evidence
let opener = null;
let current = null;
function open(cell, remember = true) {
  current = cell;
  $("evidence-table").textContent = `${cell.row.table} · ${cell.backend}`;
  $("evidence-title").replaceChildren(...breakable(cell.row.name));
  $("siblings").replaceChildren(...cell.row.cells.map((other) => element("a", {
    class: `chip ${kind(other.label)}`, href: link(other), "aria-current": other === cell ? "true" : null, "aria-label": `${other.backend}: ${other.label}`,
  }, icon(other.label), other.backend)));
  $("evidence-body").replaceChildren(...evidence(cell));
  if (remember) history.replaceState(null, "", link(cell));
  if (!$("evidence").open) { opener = document.activeElement; $("evidence").showModal(); $("close").focus(); }
  $("evidence").scrollTop = 0;
}
function fact(name, value, kind) {
  const shown = value instanceof Node ? value : String(value ?? "");
  return shown === "" ? "" : element("div", { class: kind }, element("dt", {}, name), element("dd", {}, shown));
}
function evidence(cell) {
  const parts = [element("div", { class: `verdict ${kind(cell.label)}`, role: "group", "aria-label": "Verdict" }, icon(cell.label),
    element("div", {}, element("strong", {}, cell.label), cell.reason ? element("p", {}, cell.reason) : null))];
  parts.push(element("dl", { class: "facts" },
    fact("Numeric comparisons", cell.test ? number(numeric(cell)) : ""), fact("Plain asserts", cell.test ? number((cell.comparisons || 0) - numeric(cell)) : ""),
    fact("Largest error", errorText(cell.largest_error)),
    fact("Duration", cell.duration === undefined ? "" : seconds(cell.duration)), fact("Date (UTC)", cell.date ? day(cell.date) : ""),
    fact("Commit", commitLink(cell.commit)), fact("Versions", data.shared[cell.versions], "all")));
  if (cell.test) parts.push(element("h3", {}, "Test"), element("p", {}, sourceLink(cell)));
  if (cell.about !== undefined) parts.push(element("p", { class: "note" }, data.shared[cell.about]));
  if (cell.compared) parts.push(element("h3", {}, "What was compared"), comparedTable(cell.compared));
  if (cell.source !== undefined) parts.push(element("details", { class: "source" }, element("summary", {}, "Source of the test"),
    element("pre", { tabindex: "0", "aria-label": "Source of the test" }, data.shared[cell.source])));
  if (cell.traceback) parts.push(element("h3", {}, "Traceback"), element("pre", { tabindex: "0", "aria-label": "Traceback" }, cell.traceback));
  if (cell.log) parts.push(element("h3", {}, "Log"), element("pre", { tabindex: "0", "aria-label": "Log" }, cell.log));
  parts.push(element("h3", {}, "History"), past(cell));
  return parts;
}
function comparedTable(list) {
  const head = ["Line", "Statement of the test", "Times", "Largest error"].map((name, i) => element("th", { scope: "col", class: i > 1 ? "right" : null }, name));
  return element("table", { class: "compared" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...list.map((place) =>
    element("tr", {}, element("td", { "data-name": "line" }, place.line ? String(place.line) : ""),
      element("td", {}, element("code", {}, place.text || place.how), element("span", { class: "by" }, [place.how, place.what?.length && `expected ${place.what.join("; ")}`].filter(Boolean).join(" · "))),
      element("td", { class: "right", "data-name": "times" }, number(place.count)),
      element("td", { class: "right", "data-name": "largest error" }, errorText(place.error))))));
}
function past(cell) {
  return element("ol", { class: "past" }, ...[...data.history].reverse().filter((run) => run.states[cell.index] !== ".").map((run) => {
    const status = LETTERS[run.states[cell.index]];
    return element("li", { class: kind(status) }, icon(status), element("span", {}, status), element("time", { datetime: run.date }, day(run.date)), element("code", {}, commitLink(run.commit)));
  }));
}
$("close").addEventListener("click", () => $("evidence").close());
$("evidence").addEventListener("click", (event) => { if (event.target === $("evidence")) $("evidence").close(); });
$("evidence").addEventListener("close", () => {
  history.replaceState(null, "", location.pathname + location.search);
  const button = current && document.querySelector(`[data-cell="${current.index}"]`);
  (button || opener)?.focus();
});
function follow() {
  const [table, name, backend] = location.hash.slice(1).split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  const row = rows.find((each) => each.table === table && each.name === name);
  const cell = row?.cells.find((each) => each.backend === backend);
  if (cell) open(cell, false);
}
addEventListener("hashchange", follow);
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea, dialog");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) { $("search").focus(); event.preventDefault(); }
});

// Two runs compared
const name = (run) => `${day(run.date)}${run.commit ? ` · ${run.commit}` : ""}${run.selection.length ? " · part" : ""}${run.id === data.id ? " · this run" : ""}`;
for (const select of [$("from"), $("to")]) {
  select.append(...[...data.history].reverse().map((run) => element("option", { value: run.id }, name(run))));
  select.addEventListener("change", compare);
}
function compare() {
  const [from, to] = [$("from"), $("to")].map((select) => data.history.find((run) => run.id === select.value));
  const groups = { "Turned red": [], "Turned green": [], "Changed otherwise": [] };
  cells.forEach((cell, i) => {
    const before = LETTERS[from.states[i]];
    const after = LETTERS[to.states[i]];
    if (before === after || !before || !after) return;
    const unselected = (run, status) => run.selection.length && status === "not run";
    if (unselected(from, before) || unselected(to, after)) return;
    groups[RED.has(after) && !RED.has(before) ? "Turned red" : after === "passed" ? "Turned green" : "Changed otherwise"].push([cell, before, after]);
  });
  const list = $("changes-list");
  list.replaceChildren();
  for (const [title, changes] of Object.entries(groups)) {
    if (!changes.length) continue;
    list.append(element("h3", {}, `${title}: ${number(changes.length)}`), element("ul", {}, ...changes.slice(0, 300).map(([cell, before, after]) =>
      element("li", {}, element("button", { type: "button", class: "link", onclick: () => open(cell) }, `${cell.row.name} on ${cell.backend}`), ` ${before} → ${after}`))));
    if (changes.length > 300) list.append(element("p", { class: "note" }, `and ${number(changes.length - 300)} more`));
  }
  if (!list.children.length) list.append(element("p", { class: "note" }, from === to ? "Choose two different runs." : "No cell changed between these runs."));
  const words = Object.entries(groups).filter(([, changes]) => changes.length).map(([title, changes]) => `${number(changes.length)} ${title.toLowerCase()}`);
  $("changes-head").textContent = `Compare two runs${words.length ? `: ${words.join(", ")}` : ""}`;
}
if (data.history.length > 1) {
  const complete = data.history.filter((run) => run.id !== data.id && !run.selection.length);
  $("to").value = data.id;
  $("from").value = (complete.at(-1) || data.history.at(-2)).id;
  compare();
} else {
  $("changes").hidden = true;
}

// Theme: as the system says, unless chosen
const themes = ["auto", "light", "dark"];
function paint(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  $("theme").textContent = `Theme: ${theme}`;
}
let theme = "auto";
try { theme = localStorage.getItem("trellis-matrix-theme") || "auto"; } catch { /* no storage from disk in some browsers */ }
paint(theme);
$("theme").addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  paint(theme);
  try { localStorage.setItem("trellis-matrix-theme", theme); } catch { /* as above */ }
});

$("main").hidden = false;
new ResizeObserver(() => document.documentElement.style.setProperty("--tools", `${$("tools").offsetHeight}px`)).observe($("tools"));
update();
follow();
