// The page of events, newest first, up to a limit.

import { el } from "./dom.js";
import { follow } from "./events.js";

const MOST = 500;
const table = document.getElementById("events");
const rows = table.tBodies[0];
const state = document.getElementById("state");
const pause = document.getElementById("pause");
const kept = [];
let paused = false;
let drawing = false;

function where(event) {
  if (event.kind === "lost") return [`${event.count} events are not shown: this page was too slow`];
  if (event.kind === "bound" || event.kind === "unbound") return [`process ${event.pid}`];
  if (event.kind.startsWith("note-")) return [`note ${event.name} about ${event.path || "the branch"}`];
  if (!event.path) return [event.name || ""];
  const path = event.path + (event.is_dir ? "/" : "");
  const gone = event.kind === "deleted";
  const link = gone || event.is_dir ? path : el("a", { href: `/files?ref=${encodeURIComponent(event.branch)}&path=${event.key}` }, path);
  if (event.kind === "overlap" || event.kind === "conflict") return [link, ` (changed in ${event.name}, too)`];
  return event.was ? [`${event.was} → `, link] : [link];
}

function draw() {
  drawing = false;
  if (paused) {
    state.textContent = kept.length ? `Paused; ${kept.length} waiting` : "Paused";
    return;
  }
  const made = kept.splice(0).slice(-MOST).map((event) => {
    const time = new Date(event.time_ms);
    const row = el("tr", {}, el("td", { class: "muted", title: time.toLocaleString() }, time.toLocaleTimeString("en-GB")), el("td", {}, event.kind), el("td", {}, event.branch), el("td", { class: "where mono" }, ...where(event)));
    return row;
  });
  rows.prepend(...made.reverse());
  while (rows.rows.length > MOST) rows.lastElementChild.remove();
  if (rows.rows.length) document.getElementById("nothing").hidden = true;
  table.hidden = !rows.rows.length;
}

pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "Go on" : "Pause";
  pause.setAttribute("aria-pressed", paused);
  if (!paused) state.textContent = "Listening";
  draw();
});

draw();
follow(table.dataset.branch, {
  begun: () => (state.textContent = paused ? "Paused" : "Listening"),
  gone: (sentence) => (state.textContent = sentence),
  happened(event) {
    kept.push(event);
    if (kept.length > 4 * MOST) kept.splice(0, kept.length - 4 * MOST);
    if (!drawing) requestAnimationFrame(draw);
    drawing = true;
  },
});
