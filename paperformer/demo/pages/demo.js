// What follows the pointer and the keyboard, on words that demo/markup.py writes. It sends nothing anywhere.
(() => {
  "use strict";

  // The weights of a widget: layers x heads x targets x sources, a byte each.
  const unpacked = new WeakMap();

  function weightsOf(widget) {
    if (!unpacked.has(widget)) {
      unpacked.set(widget, Uint8Array.from(atob(widget.dataset.weights), (letter) => letter.charCodeAt(0)));
    }
    return unpacked.get(widget);
  }

  function chosen(widget, kind, count) {
    const value = widget.querySelector(`select.pf-${kind}`).value;
    return value === "mean" ? [...Array(count).keys()] : [Number(value)];
  }

  function weight(widget, target, source) {
    const [layers, heads, targets, sources] = ["layers", "heads", "targets", "sources"].map((name) => Number(widget.dataset[name]));
    const bytes = weightsOf(widget);
    let sum = 0, count = 0;
    for (const layer of chosen(widget, "layer", layers)) {
      for (const head of chosen(widget, "head", heads)) {
        sum += bytes[((layer * heads + head) * targets + target) * sources + source] / 255;
        count += 1;
      }
    }
    return sum / count;
  }

  function shade(widget) {
    const at = widget.querySelector(".pf-at");
    for (const word of widget.querySelectorAll(".pf-word")) {
      const isOther = at && word.parentElement !== at.parentElement;
      if (!isOther) {
        word.style.removeProperty("--weight");
        delete word.dataset.share;
        continue;
      }
      const isTarget = at.parentElement.dataset.side === "target";
      const [target, source] = (isTarget ? [at, word] : [word, at]).map((each) => Number(each.dataset.place));
      const share = weight(widget, target, source);
      word.style.setProperty("--weight", share.toFixed(3));
      if (share >= 0.1) { word.dataset.share = `${Math.round(100 * share)}%`; } else { delete word.dataset.share; }
    }
  }

  function pointAt(word) {
    const widget = word.closest(".pf-attention");
    for (const other of widget.querySelectorAll(".pf-at")) { other.classList.remove("pf-at"); }
    word.classList.add("pf-at");
    shade(widget);
  }

  for (const kind of ["pointerover", "focusin", "click"]) {
    document.addEventListener(kind, (event) => {
      const word = event.target.closest?.(".pf-attention .pf-word");
      if (word) { pointAt(word); }
    });
  }

  document.addEventListener("change", (event) => {
    const widget = event.target.closest?.(".pf-attention");
    if (widget) { shade(widget); }
  });

  // Left and right go from word to word.
  document.addEventListener("keydown", (event) => {
    const here = event.target.closest?.(".pf-word, .pf-sure, .pf-heat, .pf-written .pf-token");
    const step = { ArrowLeft: "previousElementSibling", ArrowRight: "nextElementSibling" }[event.key];
    const next = here && step && here[step];
    if (next && (next.tabIndex === 0 || next.matches("button"))) {
      event.preventDefault();
      next.focus();
    }
  });
})();
