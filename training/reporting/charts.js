// Curves that can be read off, magnified and smoothed, in place of those that curves.py has drawn. They are drawn from the
// data in the page, #pf-data, into its figures, #pf-charts. Nothing is asked of anybody, and nothing of the data is HTML.
(() => {
  "use strict";

  const place = document.getElementById("pf-charts");
  const source = document.getElementById("pf-data");
  if (!place || !source) { return; }
  const data = JSON.parse(source.textContent);
  const BOX = { width: 360, height: 220, left: 44, right: 340, top: 8, bottom: 196 };
  const UNITS = { steps: (shown) => `step ${shown}`, minutes: (shown) => `${shown} minutes`, tokens: (shown) => `${shown} tokens` };
  const MOST_READ = 6; // curves that are read off at once
  const NEAREST = 20; // to the pointer, in the units of BOX

  const state = { unit: "steps", smoothing: 0, range: null, at: null, hiddenRuns: new Set() };
  const charts = [];

  // --- numbers ---

  const short = (value, digits = 4) => {
    const size = Math.abs(value);
    const plain = (number) => String(Number(number.toPrecision(digits)));
    if (size >= 1e9 || (size > 0 && size < 1e-4)) { return Number(value.toPrecision(digits)).toExponential().replace("e+", "e"); }
    if (size >= 1e6) { return `${plain(value / 1e6)}M`; }
    return size >= 1e4 ? `${plain(value / 1e3)}k` : plain(value);
  };
  const exact = (value) => value.toLocaleString("en", { maximumFractionDigits: state.unit === "minutes" ? 2 : 0 });

  // The place of the last number that is not larger, in numbers that grow; -1 if all are.
  function lastBelow(numbers, limit) {
    let low = -1, high = numbers.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (numbers[middle] <= limit) { low = middle; } else { high = middle - 1; }
    }
    return low;
  }

  function nearest(numbers, value) {
    const before = Math.max(0, lastBelow(numbers, value));
    const after = Math.min(numbers.length - 1, before + 1);
    return value - numbers[before] > numbers[after] - value ? after : before;
  }

  // Steps as minutes or tokens, by the clock of the run; a run without one has no place there.
  function convert(run, steps) {
    if (state.unit === "steps") { return steps; }
    const clock = data.runs[run], known = [0, ...clock.steps], values = [0, ...clock[state.unit]];
    return steps.map((step) => {
      const before = Math.min(lastBelow(known, step), known.length - 2);
      const share = (step - known[before]) / (known[before + 1] - known[before] || 1);
      return values[before] + Math.min(1, share) * (values[before + 1] - values[before]);
    });
  }

  // Exponential moving average, without the pull towards zero at the beginning (Kingma and Ba 2014, section 3). What lies
  // `apart` steps back counts less by the chosen factor: where values are rarer, fewer of them are averaged.
  function smooth(steps, values, apart) {
    let sum = 0, weight = 0;
    return values.map((value, index) => {
      const kept = index === 0 ? state.smoothing : state.smoothing ** ((steps[index] - steps[index - 1]) / apart);
      sum = kept * sum + (1 - kept) * value;
      weight = kept * weight + (1 - kept);
      return sum / weight;
    });
  }

  function ticks(low, high, about = 4) {
    const span = Math.max(high - low, 1e-6 * Math.max(Math.abs(low), Math.abs(high))) || 1;
    const power = 10 ** Math.floor(Math.log10(span / about));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= span / about * (1 - 1e-9));
    const first = Math.floor(low / step + 1e-9), last = Math.max(Math.ceil(high / step - 1e-9), first + 1);
    return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
  }

  function logTicks(low, high) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    for (const factors of [[1], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 8]]) {
      const found = [];
      for (let power = first; power <= last; power += 1) { found.push(...factors.map((factor) => factor * 10 ** power)); }
      const inside = found.filter((tick) => tick >= low && tick <= high);
      const every = Math.ceil(inside.length / 6);
      if (inside.length > 2) { return inside.filter((_, index) => index % every === 0); }
    }
    return [low, high];
  }

  // --- elements ---

  function make(name, attributes = {}, ...children) {
    const isDrawn = ["svg", "line", "text", "polyline", "circle", "rect", "g", "clipPath", "defs"].includes(name);
    const element = isDrawn ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) { element.setAttribute(key, value); }
    element.append(...children);
    return element;
  }

  function labelled(text, control) { return make("label", {}, `${text} `, control); }

  // --- a chart ---

  class Chart {
    constructor(described, figure, number) {
      this.title = described.title;
      this.low = described.low;
      this.isLog = false;
      this.hidden = new Set();
      this.curves = described.curves;
      const spans = this.curves.filter(({ x }) => x.length > 1).map(({ x, all }) => (x[x.length - 1] - x[0]) / ((all ?? x.length) - 1));
      this.apart = Math.min(...spans) || 1; // steps between the values of the densest curve
      this.clip = `pf-clip-${number}`;
      this.svg = make("svg", {
        viewBox: `0 0 ${BOX.width} ${BOX.height}`, class: "pf-live", tabindex: "0", role: "slider", "aria-label": described.title,
      });
      this.read = make("p", { class: "pf-read", "aria-hidden": "true" });
      figure.querySelector("svg").replaceWith(this.svg, this.read);
      this.addKeys(figure.querySelector("figcaption"));
      const thinned = this.curves.filter((curve) => curve.all);
      if (thinned.length) {
        const shown = Math.max(...thinned.map((curve) => curve.x.length)), all = Math.max(...thinned.map((curve) => curve.all));
        const text = `Up to ${shown.toLocaleString("en")} of ${all.toLocaleString("en")} values of a curve, the highest and lowest among them.`;
        this.read.after(make("p", { class: "pf-thinned" }, text));
      }
      this.listen();
    }

    addKeys(caption) {
      const legend = make("div", { class: "pf-legend" });
      if (caption.querySelector(".pf-legend")) { // else the page itself says which curve is whose
        for (const curve of this.curves) {
          const box = make("input", { type: "checkbox" });
          box.checked = true;
          box.addEventListener("change", () => {
            if (box.checked) { this.hidden.delete(curve); } else { this.hidden.add(curve); }
            this.draw();
          });
          legend.append(make("label", {}, box, make("span", { class: `pf-key ${curve.looks}` }), curve.name));
        }
      }
      const scale = make("input", { type: "checkbox" });
      scale.addEventListener("change", () => { this.isLog = scale.checked; this.draw(); });
      const label = make("label", { class: "pf-scale" }, scale, "logarithmic");
      legend.append(label);
      this.scale = [scale, label];
      caption.querySelector(".pf-legend")?.remove();
      caption.append(legend);
    }

    // Those that are shown, with what is to be drawn of them.
    shown() {
      return this.curves
        .filter((curve) => !this.hidden.has(curve) && !state.hiddenRuns.has(curve.run))
        .filter((curve) => state.unit === "steps" || data.runs[curve.run].steps.length)
        .map((curve) => {
          const raw = { x: convert(curve.run, curve.x), y: curve.y };
          if (state.smoothing === 0) { return { curve, raw, main: raw }; }
          const means = curve.means ?? curve;
          return { curve, raw, main: { x: convert(curve.run, means.x), y: smooth(means.x, means.y, this.apart) } };
        });
    }

    draw() {
      this.series = this.shown();
      const [from, to] = state.range ?? [0, extent()];
      this.x = (value) => BOX.left + (BOX.right - BOX.left) * (value - from) / (to - from || 1);
      this.value = (x) => from + (to - from) * (x - BOX.left) / (BOX.right - BOX.left);
      const values = [];
      for (const { raw, main } of this.series) {
        for (const line of raw === main ? [raw] : [raw, main]) {
          line.x.forEach((x, index) => { if (x >= from && x <= to) { values.push(line.y[index]); } });
        }
      }
      const canLog = this.curves.every((curve) => curve.y.every((value) => value > 0));
      this.scale[0].disabled = !canLog;
      this.scale[1].hidden = !canLog;
      this.isShownLog = this.isLog && canLog && values.length > 0;
      this.drawAxes(values, from, to);
      const lines = make("g", { "clip-path": `url(#${this.clip})` });
      for (const each of this.series) {
        if (each.raw !== each.main) { lines.append(this.line(each.raw, `pf-line pf-raw ${each.curve.looks}`)); }
        each.drawn = this.line(each.main, `pf-line ${each.curve.looks}`);
        lines.append(each.drawn);
      }
      const { left, top, right, bottom } = BOX;
      const clip = make("clipPath", { id: this.clip },
        make("rect", { x: left, y: top - 2, width: right - left + 2, height: bottom - top + 4 }));
      this.marks = make("g");
      this.svg.append(make("defs", {}, clip), lines, this.marks);
      this.mark();
    }

    drawAxes(values, from, to) {
      let low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
      if (values.length === 0) { [low, high] = [0, 1]; }
      const scale = this.isShownLog ? Math.log : (value) => value;
      if (this.isShownLog && low === high) { [low, high] = [low / 2, high * 2]; }
      if (!this.isShownLog && high - low <= 1e-5 * Math.max(Math.abs(low), Math.abs(high))) {
        [low, high] = [low - Math.abs(high) / 20, high + Math.abs(high) / 20];
      }
      if (!this.isShownLog && this.low === 0) { low = Math.min(0, low); }
      const marks = this.isShownLog ? logTicks(low, high) : ticks(low, high);
      const [first, last] = this.isShownLog ? [low, high] : [marks[0], marks[marks.length - 1]];
      this.y = (value) => BOX.bottom - (BOX.bottom - BOX.top) * (scale(value) - scale(first)) / (scale(last) - scale(first));
      this.svg.replaceChildren();
      for (const tick of marks) {
        const y = this.y(tick).toFixed(1);
        this.svg.append(make("line", { class: "pf-grid", x1: BOX.left, x2: BOX.right, y1: y, y2: y }),
          make("text", { x: BOX.left - 6, y: Number(y) + 4, "text-anchor": "end" }, short(tick, 6)));
      }
      for (const tick of ticks(from, to)) {
        if (tick >= from && tick <= to) {
          this.svg.append(make("text", { x: this.x(tick).toFixed(1), y: BOX.bottom + 17, "text-anchor": "middle" }, short(tick, 6)));
        }
      }
    }

    line({ x, y }, looks) {
      const [from, to] = state.range ?? [-Infinity, Infinity];
      const start = Math.max(0, lastBelow(x, from)), end = Math.min(x.length, lastBelow(x, to) + 2);
      const points = [];
      for (let index = start; index < end; index += 1) { points.push(`${this.x(x[index]).toFixed(1)},${this.y(y[index]).toFixed(1)}`); }
      return make("polyline", { class: looks, points: points.join(" ") });
    }

    // What there is at the place that is looked at: the nearest point of each curve.
    found() {
      if (state.at === null) { return []; }
      return this.series.map((each) => {
        const index = nearest(each.main.x, state.at);
        return { ...each, x: each.main.x[index], y: each.main.y[index], index };
      }).filter((each) => Math.abs(this.x(each.x) - this.x(state.at)) < NEAREST);
    }

    mark() {
      this.marks.replaceChildren();
      this.read.replaceChildren();
      for (const { drawn } of this.series) { drawn.classList.remove("pf-near"); }
      const found = this.found();
      if (found.length === 0) { this.say([], state.at ?? 0); return; }
      const x = this.x(state.at).toFixed(1);
      this.marks.append(make("line", { class: "pf-at-line", x1: x, x2: x, y1: BOX.top, y2: BOX.bottom }));
      if (this.pointed != null && found.length > 2) {
        const near = [...found].sort((a, b) => Math.abs(this.y(a.y) - this.pointed) - Math.abs(this.y(b.y) - this.pointed));
        near[0].drawn.classList.add("pf-near");
        if (found.length > MOST_READ) { found.splice(0, found.length, ...near); }
      }
      const read = found.slice(0, MOST_READ);
      for (const each of read) {
        this.marks.append(make("circle", { class: `pf-at-point ${each.curve.looks}`, r: 3.5, cx: this.x(each.x).toFixed(1), cy: this.y(each.y).toFixed(1) }));
      }
      this.say(read, state.at, found.length - read.length);
    }

    say(read, at, others = 0) {
      const many = this.curves.length > 1;
      const title = UNITS[state.unit](exact(at));
      const values = read.map(({ curve, y, x }) => [many ? curve.name : "", short(y, 5), x === at ? "" : ` at ${exact(x)}`]);
      if (read.length) { this.read.append(make("span", {}, make("b", {}, title))); }
      values.forEach(([name, value, where], index) => {
        const key = make("i", { class: `pf-key ${read[index].curve.looks}` });
        this.read.append(make("span", {}, ...(many ? [key, `${name} `] : []), make("b", {}, value), where));
      });
      if (others > 0) { this.read.append(make("span", {}, `and ${others} more`)); }
      const words = values.map((each) => `${each[0]} ${each[1]}${each[2]}`.trim()).join(", ");
      const [from, to] = state.range ?? [0, extent()];
      const attributes = {
        "aria-valuemin": from, "aria-valuemax": to, "aria-valuenow": Math.min(to, Math.max(from, at)),
        "aria-valuetext": read.length ? `${title}: ${words}` : "nothing chosen; the arrow keys go from value to value",
      };
      for (const [key, value] of Object.entries(attributes)) { this.svg.setAttribute(key, value); }
    }

    // --- pointer and keyboard ---

    listen() {
      const at = (event) => {
        const box = this.svg.getBoundingClientRect();
        return [(event.clientX - box.left) / box.width * BOX.width, (event.clientY - box.top) / box.height * BOX.height];
      };
      const inside = (x) => Math.min(BOX.right, Math.max(BOX.left, x));
      let start = null, selection = null;
      this.svg.addEventListener("pointerdown", (event) => {
        if (event.pointerType === "touch" || event.button !== 0) { return; }
        start = inside(at(event)[0]);
        selection = make("rect", { class: "pf-selected", x: start, y: BOX.top, width: 0, height: BOX.bottom - BOX.top });
        this.svg.append(selection);
        this.svg.setPointerCapture(event.pointerId);
      });
      this.svg.addEventListener("pointermove", (event) => {
        const [x, y] = at(event);
        if (selection) {
          selection.setAttribute("x", Math.min(start, inside(x)));
          selection.setAttribute("width", Math.abs(inside(x) - start));
        }
        this.pointed = y;
        this.goTo(this.snap(this.value(inside(x))));
      });
      const end = (event) => {
        if (!selection) { return; }
        selection.remove();
        selection = null;
        const other = inside(at(event)[0]);
        if (event.type === "pointerup" && Math.abs(other - start) > 4) {
          zoom(this.value(Math.min(start, other)), this.value(Math.max(start, other)));
        }
      };
      this.svg.addEventListener("pointerup", end);
      this.svg.addEventListener("pointercancel", end);
      this.svg.addEventListener("pointerleave", () => { this.pointed = null; if (!selection) { this.goTo(null); } });
      this.svg.addEventListener("dblclick", () => zoom());
      this.svg.addEventListener("blur", () => this.goTo(null));
      this.svg.addEventListener("keydown", (event) => this.press(event));
    }

    // All places in the range where a curve of this chart has a value.
    places() {
      const [from, to] = state.range ?? [-Infinity, Infinity];
      const all = this.series.flatMap(({ main }) => main.x).filter((x) => x >= from && x <= to);
      return [...new Set(all)].sort((a, b) => a - b);
    }

    snap(value) {
      const places = this.places();
      return places.length ? places[nearest(places, value)] : null;
    }

    goTo(value) {
      if (value === state.at) { return; }
      state.at = value;
      for (const chart of charts) { if (chart !== this) { chart.pointed = null; } chart.mark(); }
    }

    press(event) {
      if (event.ctrlKey || event.altKey || event.metaKey) { return; }
      const places = this.places(), here = state.at === null ? -1 : nearest(places, state.at);
      const stride = event.shiftKey ? 10 : 1, last = places.length - 1;
      const to = {
        ArrowRight: here + stride, ArrowUp: here + stride, ArrowLeft: here < 0 ? last : here - stride, ArrowDown: here < 0 ? last : here - stride,
        PageUp: here + 10, PageDown: here - 10, Home: 0, End: last,
      }[event.key];
      const [from, end] = state.range ?? [0, extent()];
      if (to !== undefined && places.length) {
        this.pointed = null;
        this.goTo(places[Math.min(last, Math.max(0, to))]);
      } else if (["+", "="].includes(event.key)) {
        const middle = state.at ?? (from + end) / 2;
        zoom(Math.max(0, middle - (end - from) / 4), Math.min(extent(), middle + (end - from) / 4));
      } else if (event.key === "-") {
        zoom(Math.max(0, from - (end - from) / 2), Math.min(extent(), end + (end - from) / 2));
      } else if (["Escape", "0"].includes(event.key)) {
        zoom();
      } else { return; }
      event.preventDefault();
    }
  }

  // --- all charts ---

  let reach = null; // how far the curves that are shown go, in the chosen unit
  function extent() {
    if (reach === null) {
      const ends = charts.flatMap((chart) => chart.shown().map(({ raw }) => raw.x[raw.x.length - 1]));
      reach = ends.reduce((a, b) => Math.max(a, b), 0) || 1;
    }
    return reach;
  }

  function drawAll() {
    reach = null;
    for (const chart of charts) { chart.draw(); }
  }

  const fields = {};

  function zoom(from, to) {
    const isWhole = from === undefined || !(to > from) || (from <= 0 && to >= extent());
    state.range = isWhole ? null : [from, to];
    if (!isWhole && (state.at < from || state.at > to)) { state.at = null; }
    const digits = state.unit === "minutes" ? 2 : 0;
    fields.from.value = isWhole ? "" : Number(from.toFixed(digits));
    fields.to.value = isWhole ? "" : Number(to.toFixed(digits));
    drawAll();
  }

  function addTools() {
    const units = Object.keys(UNITS).filter((unit) => unit === "steps" || data.runs.some((run) => run.steps.length));
    fields.unit = make("select", { class: "pf-unit" }, ...units.map((unit) => make("option", { value: unit }, unit)));
    fields.smoothing = make("input", { class: "pf-smoothing", type: "range", min: 0, max: 0.99, step: 0.01, value: 0 });
    fields.shown = make("output", {}, "0");
    fields.from = make("input", { class: "pf-from", type: "number", min: 0, step: "any", placeholder: "first" });
    fields.to = make("input", { class: "pf-to", type: "number", min: 0, step: "any", placeholder: "last" });
    fields.whole = make("button", { class: "pf-whole", type: "button" }, "All");
    const smoothing = labelled("Smoothing", fields.smoothing);
    smoothing.append(fields.shown);
    const tools = make("div", { class: "pf-tools" }, labelled("Against", fields.unit), smoothing,
      labelled("From", fields.from), labelled("to", fields.to), fields.whole);
    const hint = make("p", { class: "pf-how" },
      "Point at a curve to read it off, and drag to look closer. By keyboard: Tab goes to a curve, the arrow keys from value to value, + and − magnify, Escape shows all.");
    place.before(tools, hint);
    fields.unit.addEventListener("change", () => { state.unit = fields.unit.value; state.at = null; reach = null; zoom(); });
    fields.smoothing.addEventListener("input", () => {
      state.smoothing = Number(fields.smoothing.value);
      fields.shown.value = fields.smoothing.value;
      drawAll();
    });
    const typed = () => zoom(Number(fields.from.value || 0), fields.to.value === "" ? extent() : Number(fields.to.value));
    fields.from.addEventListener("change", typed);
    fields.to.addEventListener("change", typed);
    fields.whole.addEventListener("click", () => zoom());
  }

  const figures = place.querySelectorAll("figure");
  data.charts.forEach((described, number) => charts.push(new Chart(described, figures[number], number)));
  addTools();
  document.getElementById("pf-still")?.remove();
  // A page with many runs says which of them are to be seen.
  document.addEventListener("pf-runs", (event) => { state.hiddenRuns = new Set(event.detail); drawAll(); });
  drawAll();
})();
