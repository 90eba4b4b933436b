// Which branches the first page shows, in which order, and the keys for that. It asks the server for nothing.

const SHOWS = {
  all: () => true,
  working: (row) => Number(row.working) > 0,
  passed: (row) => row.result === "passed",
  failed: (row) => row.result === "failed",
  conflicts: (row) => Number(row.conflicts) > 0 || row.merging !== undefined,
};
const down = (name) => (one, other) => Number(other[name]) - Number(one[name]);
const ORDERS = {
  "": (one, other) => Number(one.rank) - Number(other.rank),
  changed: down("changed"),
  run: down("run"),
  size: down("size"),
  conflicts: down("conflicts"),
  name: (one, other) => one.name.localeCompare(other.name, "en", { numeric: true }),
};

export class BoardOrder {
  constructor(table) {
    this.table = table;
    this.search = document.getElementById("search");
    this.order = document.getElementById("order");
    this.filters = [...document.querySelectorAll("#filters input")];
    const given = new URLSearchParams(location.search);
    if (given.get("show") in SHOWS) this.filters.find((each) => each.value === given.get("show")).checked = true;
    if (given.get("order") in ORDERS) this.order.value = given.get("order");
    this.search.value = given.get("q") ?? "";
    for (const each of [this.search, this.order, ...this.filters]) each.addEventListener("input", () => this.changed());
    document.addEventListener("keydown", (event) => this.pressed(event));
    this.search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== "Escape" && event.key !== "ArrowDown") return;
      event.preventDefault();
      this.links()[0]?.focus();
    });
  }

  // Keep the choice in the address, so that loading again and going back show the same.
  changed() {
    const kept = Object.entries({ show: this.shows() === "all" ? "" : this.shows(), order: this.order.value, q: this.search.value }).filter(([, value]) => value);
    history.replaceState(history.state, "", kept.length ? `/?${new URLSearchParams(kept)}` : "/");
    this.apply();
  }

  shows() {
    return this.filters.find((each) => each.checked).value;
  }

  apply() {
    const words = this.search.value.toLowerCase();
    const rows = [...this.table.rows];
    const focused = document.activeElement;
    const sorted = [...rows].sort((one, other) => ORDERS[this.order.value](one.dataset, other.dataset) || ORDERS[""](one.dataset, other.dataset));
    if (sorted.some((row, index) => row !== rows[index])) {
      this.table.append(...sorted);
      focused?.focus?.({ preventScroll: true }); // moving an element takes the focus from it
    }
    const found = rows.filter((row) => row.textContent.toLowerCase().includes(words));
    for (const row of rows) row.hidden = !found.includes(row) || !SHOWS[this.shows()](row.dataset);
    for (const count of document.querySelectorAll("#filters .count")) count.textContent = found.filter((row) => SHOWS[count.dataset.of](row.dataset)).length;
    document.getElementById("none").hidden = rows.some((row) => !row.hidden);
    this.table.parentElement.tHead.hidden = rows.every((row) => row.hidden);
  }

  links() {
    return [...this.table.querySelectorAll("tr:not([hidden]) .row-link")];
  }

  go(step) {
    const links = this.links();
    const row = document.activeElement?.closest?.("tr");
    const at = row ? links.indexOf(row.querySelector(".row-link")) : -1;
    const to = at < 0 ? (step > 0 ? links[0] : links.at(-1)) : links[at + step];
    to?.focus();
    to?.closest("tr").scrollIntoView({ block: "nearest" });
  }

  pressed(event) {
    const isWriting = event.target.matches("input[type=search], select, textarea");
    if (event.defaultPrevented || isWriting || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (event.target.matches("input[type=radio]") && event.key.startsWith("Arrow")) return;
    const filter = this.filters[Number(event.key) - 1];
    if (step) this.go(step);
    else if (filter && event.key !== "0") filter.click();
    else if (event.key === "s") this.next();
    else if (event.key === "x") document.activeElement?.closest?.("tr")?.querySelector("input").click();
    else if (event.key === "c" && !document.getElementById("compare-two").disabled) document.getElementById("compare-two").click();
    else return;
    event.preventDefault();
  }

  next() {
    this.order.selectedIndex = (this.order.selectedIndex + 1) % this.order.options.length;
    this.changed();
  }
}
