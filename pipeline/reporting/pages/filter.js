const form = document.getElementById("filter");
const lines = [...document.querySelectorAll("table.lines tbody tr")];
const show = () => {
  const asked = new FormData(form);
  const most = Number(asked.get("most")) || Infinity;
  const words = (asked.get("search") ?? "").toLowerCase().split(/\s+/);
  let count = 0;
  for (const line of lines) {
    const { paper, status, extra, most: bound } = line.dataset;
    const text = line.textContent.toLowerCase();
    const fits = [["paper", paper], ["status", status]].every(([name, value]) => !asked.get(name) || asked.get(name) === value) &&
      (extra === undefined || asked.has("all") || (status !== "" && asked.get("status") === status)) &&
      (most === Infinity || Number(bound) <= most) && words.every((word) => text.includes(word));
    line.hidden = !fits;
    count += fits;
  }
  form.querySelector("output").textContent = `${count} of ${lines.length}`;
};
for (const [name, value] of new URLSearchParams(location.search)) form.elements[name].value = value;
form.addEventListener("input", show);
form.addEventListener("submit", (event) => event.preventDefault());
show();
