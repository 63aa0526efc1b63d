// Hides the lines of the table that the form leaves out. Without this script the whole table is there.
const form = document.getElementById("filter");
const lines = [...document.querySelectorAll("table.flat tbody tr")];
const show = () => {
  const asked = new FormData(form);
  const limit = asked.get("proven") === "" ? Infinity : Number(asked.get("proven"));
  const chosen = ["paper", "data", "method", "privacy"].filter((name) => asked.get(name));
  let shown = 0;
  for (const line of lines) {
    const proven = line.dataset.proven === "" ? NaN : Number(line.dataset.proven);
    const fits = chosen.every((name) => line.dataset[name] === asked.get(name)) &&
      (limit === Infinity || proven <= limit);
    line.hidden = !fits;
    shown += fits;
  }
  form.querySelector("output").textContent = `${shown} of ${lines.length} shown`;
};
form.addEventListener("input", show);
form.addEventListener("submit", (event) => event.preventDefault());
form.hidden = false;
show();
