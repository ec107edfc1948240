// The table of runs: sorted by a column, filtered, and with the choice of which curves are drawn. Nothing is asked of anybody.
(() => {
  "use strict";

  const table = document.getElementById("runs");
  const rows = [...table.tBodies[0].rows];
  const heads = [...table.tHead.rows[0].cells];
  const filters = document.getElementById("filters");
  const [filter, task, kind, count] = ["filter", "task", "kind", "count"].map((id) => document.getElementById(id));

  // --- sorting ---

  function sortBy(head) {
    const column = head.cellIndex, isText = head.dataset.kind === "text";
    const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const known = (row) => (isText ? row.cells[column].textContent.trim() : row.cells[column].dataset.value ?? row.cells[column].textContent.trim());
    const compare = (a, b) => {
      const [first, second] = [known(a), known(b)];
      if (first === "" || second === "") { return (first === "") - (second === ""); } // what is not known is last
      const [x, y] = [Number(first), Number(second)];
      return direction * (isText || Number.isNaN(x) || Number.isNaN(y) ? first.localeCompare(second, "en", { numeric: true }) : x - y);
    };
    for (const each of heads) { each.removeAttribute("aria-sort"); }
    head.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
    table.tBodies[0].append(...rows.sort(compare));
  }

  for (const head of heads.slice(1)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent.trim();
    button.addEventListener("click", () => sortBy(head));
    head.replaceChildren(button);
  }

  // --- what is shown ---

  const boxes = new Map();
  function checkbox(name) {
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = true;
    box.setAttribute("aria-label", name);
    return box;
  }

  function tellCharts() {
    const hidden = [...boxes].filter(([row, box]) => row.hidden || !box.checked).map(([row]) => Number(row.dataset.run));
    document.dispatchEvent(new CustomEvent("pf-runs", { detail: hidden }));
  }

  // Columns of recipes' fields in which those that are shown do not differ tell nothing.
  function hideColumns() {
    const shown = rows.filter((row) => !row.hidden && row.dataset.run !== undefined);
    for (const head of heads.filter((each) => each.classList.contains("option"))) {
      const isAlike = new Set(shown.map((row) => row.cells[head.cellIndex].textContent)).size < 2;
      for (const cells of [table.tHead.rows[0].cells, ...rows.map((row) => row.cells)]) { cells[head.cellIndex].hidden = isAlike; }
    }
  }

  function choose() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
      const isMeant = words.every((word) => text.includes(word));
      row.hidden = !isMeant || ((task?.value ?? "") !== "" && row.dataset.task !== task.value) ||
        ((kind?.value ?? "") !== "" && row.dataset.kind !== kind.value);
    }
    const shown = rows.filter((row) => !row.hidden).length;
    count.value = shown === rows.length ? `${rows.length} runs` : `${shown} of ${rows.length} runs`;
    hideColumns();
    tellCharts();
  }

  const titles = heads.map((head) => head.textContent.trim());
  for (const row of rows) {
    for (const cell of [...row.cells].slice(4)) { cell.dataset.title = titles[cell.cellIndex]; } // for paper
    if (row.dataset.run === undefined) { continue; }
    const box = checkbox(`draw ${row.cells[1].textContent.trim()}`);
    box.addEventListener("change", tellCharts);
    boxes.set(row, box);
    const label = document.createElement("label");
    label.append(box, ...row.cells[0].childNodes);
    row.cells[0].append(label);
  }
  const all = checkbox("draw all that are shown");
  all.addEventListener("change", () => {
    for (const [row, box] of boxes) { if (!row.hidden) { box.checked = all.checked; } }
    tellCharts();
  });
  if (boxes.size > 1) { heads[0].prepend(all); }

  filter.addEventListener("input", choose);
  for (const field of [task, kind]) { field?.addEventListener("change", choose); }
  filters.hidden = rows.length < 3;
  choose();
})();
