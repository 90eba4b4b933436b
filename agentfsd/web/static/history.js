// The page of the history: arrow keys move between its links.

document.addEventListener("keydown", (event) => {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const links = [...document.querySelectorAll(".history .row-link")];
  const at = links.indexOf(document.activeElement);
  if (at < 0 && event.key === "ArrowUp") return;
  const to = links[at + (event.key === "ArrowDown" ? 1 : -1)];
  if (to) {
    event.preventDefault();
    to.focus();
  }
});
