// A list of any length. Only its visible rows are in the page. Arrow keys move in it.

export class List {
  // draw(index) makes the content of a row; Enter and clicks call open(index, isByKey); other keys call key(event, index).
  constructor(box, { role, draw, open, key = () => false }) {
    Object.assign(this, { box, role, draw, open, key, count: 0, active: 0, chosen: -1, shown: new Map() });
    this.space = document.createElement("div");
    this.space.className = "space";
    this.space.setAttribute("role", "presentation");
    box.replaceChildren(this.space);
    box.addEventListener("scroll", () => this.look(), { passive: true });
    box.addEventListener("keydown", (event) => this.pressed(event));
    box.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.take(Number(row.dataset.index), event);
    });
    new ResizeObserver(() => this.look()).observe(box);
  }

  get height() {
    return parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row"));
  }

  renew(count) {
    this.count = count;
    this.active = Math.max(0, Math.min(this.active, count - 1));
    this.space.style.height = `${count * this.height}px`;
    this.space.replaceChildren();
    this.shown.clear();
    this.look();
  }

  look() {
    const height = this.height;
    const first = Math.max(0, Math.floor(this.box.scrollTop / height) - 8);
    const last = Math.min(this.count, Math.ceil((this.box.scrollTop + this.box.clientHeight) / height) + 8);
    for (const [index, row] of this.shown) {
      if (index < first || index >= last) {
        row.remove();
        this.shown.delete(index);
      }
    }
    for (let index = first; index < last; index++) {
      if (!this.shown.has(index)) this.put(index, height);
    }
    this.point();
  }

  put(index, height) {
    const row = this.draw(index);
    row.classList.add("row");
    row.id = `row-${index}`;
    row.dataset.index = index;
    row.setAttribute("role", this.role);
    row.setAttribute("aria-setsize", this.count);
    row.setAttribute("aria-posinset", index + 1);
    row.style.top = `${index * height}px`;
    this.shown.set(index, row);
    this.space.append(row);
  }

  point() {
    for (const [index, row] of this.shown) {
      row.classList.toggle("active", index === this.active);
      row.classList.toggle("chosen", index === this.chosen);
      row.setAttribute("aria-selected", index === this.chosen);
    }
    if (this.shown.has(this.active)) this.box.setAttribute("aria-activedescendant", `row-${this.active}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  go(index) {
    if (!this.count) return;
    this.active = Math.max(0, Math.min(index, this.count - 1));
    const top = this.active * this.height;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + this.height > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + this.height - this.box.clientHeight;
    this.look();
  }

  take(index, event) {
    this.go(index);
    this.open(index, event);
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.count) return;
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.height) - 1);
    const to = { ArrowDown: this.active + 1, ArrowUp: this.active - 1, Home: 0, End: this.count - 1, PageDown: this.active + page, PageUp: this.active - page }[event.key];
    if (to !== undefined) this.go(to);
    else if (event.key === "Enter" || event.key === " ") this.take(this.active, event);
    else if (!this.key(event, this.active)) return;
    event.preventDefault();
  }
}
