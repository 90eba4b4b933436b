// The parts of every page: keys, help, choices that take effect at once, and choosing two states to compare.

const help = document.getElementById("help");
let leading = false;

document.getElementById("help-button").addEventListener("click", () => help.showModal());

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const search = document.getElementById("search");
  if (event.target.matches("input[type=search]")) {
    if (event.key === "Escape") document.getElementById("list")?.focus();
    return;
  }
  if (event.target.matches("input:not([type=checkbox]), select, textarea") || help.open) return;
  if (leading) {
    leading = false;
    const link = [...document.querySelectorAll("nav a")].find((each) => each.dataset.letter === event.key);
    if (link) {
      event.preventDefault();
      link.click();
      return;
    }
  }
  if (event.key === "?") help.showModal();
  else if (event.key === "g") leading = true;
  else if (event.key === "/" && search) {
    event.preventDefault();
    document.querySelector(".split.reading")?.classList.remove("reading");
    search.focus();
    search.select();
  }
});

const choose = document.getElementById("choose");
choose?.addEventListener("change", (event) => {
  if (event.target.matches("select")) choose.requestSubmit();
});

const button = document.getElementById("compare-two");
if (button) {
  const form = button.form;
  const said = document.getElementById("chosen");
  const idle = said.textContent;
  const look = () => {
    const chosen = [...form.querySelectorAll("input[name=ref]:checked")];
    button.disabled = chosen.length !== 2;
    const name = (input) => input.getAttribute("aria-label").split(" ").slice(1, -2).join(" ");
    said.textContent = chosen.length === 0 ? idle : chosen.length === 1 ? `${name(chosen[0])}, and one more` : chosen.length === 2 ? chosen.map(name).join(" and ") : "Only two can be compared at once.";
  };
  form.addEventListener("change", look);
  document.addEventListener("rows-renewed", look);
  window.addEventListener("pageshow", look);
  look();
}
