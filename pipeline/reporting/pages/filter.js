// Sorts the table by a column and hides the lines that the form leaves out; the address keeps both, so that a link
// shows the same. A narrow screen shows the first lines until a button asks for the others. Without this script the
// whole table is there.
const NARROW = 700;
const FIRST = 50;
const form = document.getElementById("filter");
const table = document.querySelector("table.flat");
const lines = [...table.tBodies[0].rows];
const heads = [...table.tHead.rows[0].cells];
const choices = [...form.querySelectorAll("select")].map((select) => select.name);
const more = document.createElement("button");
let order = { column: -1, falling: false };
let limit = window.innerWidth > NARROW ? Infinity : FIRST;

// numbers come before words, and what is missing comes last in either direction
const key = (line) => {
  const text = line.cells[order.column].dataset.sort ?? line.cells[order.column].textContent.trim();
  return text === "" ? null : Number.isNaN(Number(text)) ? text : Number(text);
};
const compare = (a, b) => {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  const rising = typeof a === "number" ? a - b : a.localeCompare(b);
  return order.falling ? -rising : rising;
};
const sorted = () => {
  if (order.column < 0) return lines;
  const keys = new Map(lines.map((line) => [line, key(line)]));
  return [...lines].sort((a, b) => compare(keys.get(a), keys.get(b)));
};
const show = () => {
  const asked = new FormData(form);
  const most = asked.get("proven") ? Number(asked.get("proven")) : Infinity;
  const words = (asked.get("search") ?? "").toLowerCase().split(/\s+/);
  const chosen = choices.filter((name) => asked.get(name));
  const ordered = sorted();
  let fitting = 0;
  for (const line of ordered) {
    const text = line.textContent.toLowerCase();
    const proven = line.dataset.proven === "" ? NaN : Number(line.dataset.proven);
    const fits = chosen.every((name) => line.dataset[name] === asked.get(name)) &&
      (most === Infinity || proven <= most) && words.every((word) => text.includes(word));
    fitting += fits;
    line.hidden = !fits || fitting > limit;
  }
  const shown = Math.min(fitting, limit);
  form.querySelector("output").textContent = `${shown} of ${lines.length} shown`;
  more.hidden = fitting <= limit;
  more.textContent = `Show ${fitting - shown} more`;
  heads.forEach((head, number) => {
    const direction = number === order.column ? (order.falling ? "descending" : "ascending") : "none";
    head.setAttribute("aria-sort", direction);
  });
  table.tBodies[0].append(...ordered);
  const kept = new URLSearchParams([...asked].filter(([, value]) => value !== ""));
  if (order.column >= 0) kept.set("sort", `${order.falling ? "-" : ""}${order.column}`);
  history.replaceState(null, "", `${location.pathname}${kept.size ? `?${kept}` : ""}${location.hash}`);
};
heads.forEach((head, column) => {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    order = { column, falling: order.column === column && !order.falling };
    show();
  });
});
for (const [name, value] of new URLSearchParams(location.search)) {
  const field = form.elements[name];
  if (field) field.value = value;
  const column = Number(value.replace("-", ""));
  if (name === "sort" && heads[column]) order = { column, falling: value.startsWith("-") };
}
more.type = "button";
more.addEventListener("click", () => {
  limit = Infinity;
  show();
});
table.parentElement.after(more);
form.addEventListener("input", show);
form.addEventListener("submit", (event) => event.preventDefault());
form.hidden = false;
show();
