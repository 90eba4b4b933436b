// Notes on the page that reviews a branch: a list at the top, each note below its line, and forms to write them. It knows the page
// by its elements only: cards of files, and the rows of their lines.

import { address, ask, el, plural } from "./dom.js";

const AT_FIRST = 20; // notes in the list before a person asks for all
const MOST_CHARACTERS = 16000;
const SOON = 100; // ms between an event about a note and asking
const LATER = 1500; // ms between other events and asking
const box = document.getElementById("notes");
const cards = document.getElementById("cards");
const review = document.getElementById("review");
const { branch, name } = review.dataset;
const writable = review.dataset.writable !== undefined;
const csrf = document.querySelector("#acts input[name=csrf]")?.value;
let notes = [];
let isWhole = false; // the list shows all of them
let isPast = false; // also those that are resolved
const unfolded = new Map(); // by number of a note in the list: whether a person has unfolded it
let opened = null; // the note that is being written: { place, form }

const isAnswered = (note) => document.querySelector(`.remark[data-note="${note.id}"] > form`); // somebody is writing
const shown = () => notes.filter((note) => isPast || !note.resolved || isAnswered(note));
const post = (path, form) => ask(`/api/notes/${path}`, { method: "POST", body: new URLSearchParams({ csrf, ...form }) });

// -- one note

function said(one, tag) {
  const by = el("span", { class: one.agent ? "tag" : "remark-by" }, one.author);
  return el(tag, { class: "remark-said" }, el("div", { class: "remark-head" }, by, " ", el("span", { class: "muted", title: one.clock }, one.when)), el("div", { class: "remark-text" }, one.text));
}

function placeOf(note) {
  return note.key ? el("a", { href: `#note-${note.id}`, onclick: (event) => (event.preventDefault(), reveal(note)) }, note.about) : el("span", {}, note.about);
}

function remark(note, hasPlace) {
  const made = el("article", { class: `remark ${note.resolved ? "resolved" : ""}`, "data-note": note.id, "aria-label": `Note ${note.id}` });
  const place = hasPlace ? el("div", { class: "remark-place mono" }, placeOf(note)) : "";
  const lines = note.lines.length ? el("pre", { class: "remark-lines" }, note.lines.join("\n")) : "";
  const past = note.resolved ? el("p", { class: "muted" }, `Resolved by ${note.resolved}.`) : "";
  made.append(...[place, lines, said(note, "div"), ...note.answers.map((one) => said(one, "div")), past].filter(Boolean));
  if (writable) made.append(acts(note, made));
  return made;
}

function acts(note, made) {
  const reply = el("button", { type: "button", class: "quiet remark-reply" }, "Reply");
  const words = note.resolved ? "Open again" : "Resolve";
  const settle = el("button", { type: "button", class: "quiet remark-resolve" }, words);
  const bar = el("div", { class: "remark-acts" }, reply, settle);
  reply.addEventListener("click", () => {
    if (made.querySelector("form")) return made.querySelector("textarea").focus();
    made.append(form(`Reply to note ${note.id}`, "Reply", (text, once) => post("answer", { branch, id: note.id, text, once }), () => reply.focus()));
    made.querySelector("textarea").focus();
  });
  settle.addEventListener("click", async () => {
    settle.disabled = true;
    try {
      await post("resolve", { id: note.id, open: note.resolved ? "1" : "" });
      await load();
    } catch (error) {
      settle.disabled = false;
      complain(bar, error);
    }
  });
  return bar;
}

function complain(place, error) {
  place.querySelector("[role=alert]")?.remove();
  place.append(el("span", { role: "alert", class: "warn" }, error.message));
}

// A small form. send(text) returns a promise; left() is called when it is closed without sending.
function form(label, verb, send, left, begun = "") {
  const text = el("textarea", { rows: 3, maxlength: MOST_CHARACTERS, "aria-label": label, placeholder: label });
  text.value = begun;
  const button = el("button", { type: "submit", class: "primary" }, verb);
  const once = Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("-"); // sent again, it is the same note
  const close = () => {
    made.remove();
    left();
  };
  const made = el("form", { class: "remark-form" }, text, el("div", { class: "remark-acts" }, button, el("button", { type: "button", onclick: close }, "Cancel"), el("span", { class: "muted" }, "Ctrl+Enter")));
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!text.value.trim() || button.disabled) return;
    button.disabled = true;
    try {
      await send(text.value, once);
    } catch (error) {
      button.disabled = false;
      return complain(made, error);
    }
    made.remove();
    opened = null;
    await load();
  });
  made.addEventListener("keydown", (event) => {
    event.stopPropagation(); // these keys are text, not the page's
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) made.requestSubmit();
  });
  return made;
}

// -- the list at the top

// A line for each note; what stands below no line is unfolded.
function item(note) {
  const words = note.text.split(/\s+/).join(" ");
  const answers = note.answers.length ? el("span", { class: "muted" }, plural(note.answers.length, "answer")) : "";
  const top = el("summary", {}, el("span", { class: "remark-words" }, words), answers);
  const made = el("details", { class: "remark-item", open: unfolded.get(note.id) ?? !note.key }, top, remark(note, false));
  top.addEventListener("click", () => unfolded.set(note.id, !made.open));
  return el("div", { class: "remark-entry" }, el("span", { class: "remark-place mono" }, placeOf(note)), made); // a link may not be in a summary
}

function drawList() {
  const open = notes.filter((note) => !note.resolved).length;
  const all = shown();
  const some = isWhole ? all : all.slice(0, AT_FIRST);
  const heading = el("h2", {}, open ? plural(open, "open note") : "Notes");
  const bar = el("div", { class: "remark-bar" }, heading);
  if (notes.length > open) bar.append(el("button", { type: "button", class: "quiet", id: "notes-past", onclick: () => ((isPast = !isPast), draw()) }, isPast ? "Hide resolved" : `Show ${plural(notes.length - open, "resolved note")}`));
  if (writable) bar.append(el("button", { type: "button", id: "notes-add", onclick: () => openAt({ key: "", line: 0 }) }, "Add a note"));
  const more = some.length < all.length ? el("button", { type: "button", id: "notes-all", onclick: () => ((isWhole = true), draw()) }, `Show all ${all.length.toLocaleString("en")}`) : "";
  const own = opened && !opened.place.key ? opened.form : "";
  keepForms(box, () => box.replaceChildren(...[bar, own, ...some.map(item), more].filter(Boolean)));
  box.hidden = !writable && !notes.length;
}

// Draw again without losing what somebody is writing.
function keepForms(place, redraw) {
  const kept = new Map([...place.querySelectorAll(".remark > form")].map((each) => [each.parentElement.dataset.note, each]));
  const focused = document.activeElement;
  redraw();
  for (const [id, each] of kept) {
    const made = place.querySelector(`.remark[data-note="${id}"]`);
    made?.append(each);
  }
  if (focused?.isConnected && focused !== document.activeElement) focused.focus();
}

// -- below the lines

const table = (row) => row.closest("table.diff");
const numberCell = (row) => (row.cells.length < 3 ? null : row.cells[table(row).classList.contains("unified") ? 1 : 2]);
const textCell = (row) => row.cells[table(row).classList.contains("unified") ? 2 : 3];

function lineOf(row) {
  const cell = numberCell(row);
  return cell ? Number.parseInt(cell.firstChild?.nodeType === 3 ? cell.firstChild.data : "", 10) || 0 : 0;
}

const rowsOf = (card) => card.querySelectorAll(".card-body table.diff > tbody > tr:not(.remark-row)");
const ours = (node) => node.nodeType !== 1 || node.matches(".remark-row, .remark-rest, .remark-plus, .remark-file, .remark-form");

function put(card) {
  const own = shown().filter((note) => note.key && note.key === card.dataset.key);
  const mine = opened && opened.place.key && opened.place.key === card.dataset.key;
  keepForms(card, () => {
    for (const each of card.querySelectorAll(".remark-row, .remark-rest")) each.remove();
    if (own.length || mine) place(card, own);
  });
  if (writable && !card.querySelector(".remark-file")) card.querySelector(".card-top .spacer").after(el("button", { type: "button", class: "quiet remark-file", "aria-label": `Add a note about ${card.ariaLabel}`, onclick: () => openAt({ key: card.dataset.key, line: 0 }) }, "Note"));
}

function place(card, own) {
  const rows = new Map();
  for (const row of rowsOf(card)) if (lineOf(row)) rows.set(lineOf(row), row);
  const ends = new Map(); // where the next one of a line goes
  const below = (row, node) => {
    const made = el("tr", { class: "remark-row" }, el("td", { colspan: row.cells.length }, node));
    (ends.get(row) ?? row).after(made);
    ends.set(row, made);
  };
  const rest = [];
  for (const note of own) {
    const row = rows.get(note.last_line || note.line);
    if (note.line && row) below(row, remark(note, false));
    else rest.push(remark(note, true));
  }
  const body = card.querySelector(".card-body");
  if (rest.length) body.prepend(el("div", { class: "remark-rest" }, ...rest));
  if (!opened || opened.place.key !== card.dataset.key) return;
  const row = rows.get(opened.place.line);
  if (row) below(row, opened.form);
  else body.prepend(el("div", { class: "remark-rest" }, opened.form));
}

// -- writing a note

function openAt(at) {
  const begun = opened?.form.querySelector("textarea");
  if (!begun?.value.trim()) {
    opened?.form.remove();
    const label = at.line ? `Note on line ${at.line}` : at.key ? "Note on this file" : "Note on the branch";
    const send = (text, once) => post("add", { branch, name, path: at.key, line: at.line || "", seen: at.seen ?? "", text, once });
    opened = { place: at, form: form(label, "Add note", send, () => ((opened = null), draw())) };
    opened.form.id = "note-form";
    draw();
  }
  opened.form.querySelector("textarea").focus(); // of one that was begun, if there is one: its text is not thrown away
}

const plus = el("button", { type: "button", class: "remark-plus", tabindex: "-1" }, "+");
plus.addEventListener("click", () => writeAt(plus.closest("tr")));

function writeAt(row) {
  const line = row && lineOf(row);
  if (line) openAt({ key: row.closest(".file-card").dataset.key, line, seen: textCell(row).textContent });
}

// The first line of the hunk that the keys have reached which the new version has and the old one has not; else its first line.
function writeAtHunk() {
  const hunk = document.querySelector(".hunk.at");
  if (!hunk) return openAt({ key: "", line: 0 });
  let first = null;
  for (let row = hunk.matches("tr") ? hunk.nextElementSibling : null; row && !row.matches(".hunk, .rest"); row = row.nextElementSibling) {
    if (row.matches(".remark-row") || !lineOf(row)) continue;
    first ??= row;
    if (textCell(row).classList.contains("now")) return writeAt(row);
  }
  if (first) writeAt(first);
  else openAt({ key: hunk.closest(".file-card").dataset.key, line: 0 });
}

if (writable) {
  cards.addEventListener("pointerover", (event) => {
    const row = event.target.closest?.("table.diff > tbody > tr:not(.remark-row)");
    if (!row || !lineOf(row) || row.contains(plus)) return;
    plus.setAttribute("aria-label", `Add a note on line ${lineOf(row)}`);
    plus.title = "Add a note (r)";
    numberCell(row).append(plus);
  });
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.key !== "r" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input:not([type=checkbox]), select, textarea") || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    writeAtHunk();
  });
}

// -- the page as a whole

// Go to a note below its line. Its card may be folded, and loads its lines when it comes near the window.
async function reveal(note) {
  const find = () => cards.querySelector(`.remark-row [data-note="${note.id}"], .remark-rest [data-note="${note.id}"]`);
  const card = [...cards.querySelectorAll(".file-card")].find((each) => each.dataset.key === note.key);
  if (!card) return;
  if (card.classList.contains("folded")) card.querySelector(".fold").click();
  card.scrollIntoView({ block: "start" });
  for (let tries = 0; tries < 100 && !find()?.closest(".remark-row") && !card.querySelector(".card-body table.diff"); tries++) await new Promise((done) => setTimeout(done, 50));
  const found = find();
  (found ?? card).scrollIntoView({ block: "center" });
  found?.classList.add("fresh");
}

let observed = false;

function draw() {
  drawList();
  for (const card of cards.querySelectorAll(".file-card")) put(card);
  if (observed) watcher.takeRecords();
}

// Cards are made and drawn again by the page: their notes are put back then.
const watcher = new MutationObserver((records) => {
  const touched = new Set();
  for (const record of records) {
    if ([...record.addedNodes, ...record.removedNodes].every(ours)) continue;
    for (const node of record.addedNodes) if (node.nodeType === 1 && node.matches(".file-card")) touched.add(node);
    const card = record.target.closest?.(".file-card");
    if (card && !record.target.closest(".remark, .card-top")) touched.add(card);
  }
  for (const card of touched) if (card.isConnected) put(card);
  watcher.takeRecords();
});

let asked = 0;

async function load() {
  const turn = ++asked;
  try {
    const found = await ask(address("/api/notes", { branch }));
    if (turn !== asked) return; // a later answer has come, or will
    notes = found;
  } catch (error) {
    box.hidden = false;
    return complain(box, error);
  }
  draw();
}

// An event about a note is shown soon; files that change only move notes, which may cost a comparison.
const planned = new Set();

function plan(after) {
  if (planned.has(after)) return;
  planned.add(after);
  setTimeout(() => (planned.delete(after), load()), after);
}

document.addEventListener("branch-event", ({ detail }) => {
  if (detail.kind.startsWith("note-")) plan(SOON);
  else if (notes.length && /^(modified|created|deleted|renamed|restore|merge|undo)$/.test(detail.kind)) plan(LATER);
});

watcher.observe(cards, { childList: true, subtree: true });
observed = true;
await load();
