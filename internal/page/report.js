// Shows the values under the mouse, or at the place that the arrow keys move, beside each chart's line.
"use strict";
for (const chart of document.querySelectorAll(".chart")) {
  const svg = chart.querySelector("svg");
  const [left, top, right, bottom] = svg.dataset.box.split(" ").map(Number);
  const axis = text => { const [from, to, ...unit] = text.split(" "); return { from: +from, to: +to, unit: unit.join(" ") }; };
  const x = axis(svg.dataset.x), y = axis(svg.dataset.y);
  const lines = [...svg.querySelectorAll("polyline")].filter(l => l.points.length > 0);
  const tip = chart.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.setAttribute("role", "status");
  const mark = svg.appendChild(document.createElementNS(svg.namespaceURI, "path"));
  mark.setAttribute("class", "mark");

  // As many digits as a hundredth of a pixel is worth.
  const written = (axis, value) => axis.unit === "" ? value.toFixed(0) : value.toFixed(axis.to - axis.from >= 100 ? 1 : axis.to - axis.from >= 1 ? 2 : 4) + " " + axis.unit;
  // The last that was measured at or before a place.
  const reached = (line, at) => [...line.points].reduce((a, b) => b.x <= at + 0.01 ? b : a);

  let at = left;
  const show = place => {
    at = Math.min(right, Math.max(left, place));
    if (x.unit === "") at = left + Math.round((at - left) / (right - left) * (x.to - x.from)) / (x.to - x.from) * (right - left);
    mark.setAttribute("d", `M${at} ${top}V${bottom}`);
    tip.replaceChildren(document.createElement("b"));
    tip.firstChild.textContent = written(x, x.from + (at - left) / (right - left) * (x.to - x.from));
    for (const line of lines) {
      const value = y.from + (bottom - reached(line, at).y) / (bottom - top) * (y.to - y.from);
      const row = tip.appendChild(document.createElement("span")), key = row.appendChild(document.createElement("i"));
      key.className = "key " + line.getAttribute("class");
      row.append(`${line.dataset.name}: ${written(y, value)}`);
    }
    const width = chart.clientWidth, pixel = at / svg.viewBox.baseVal.width * width;
    tip.style.left = pixel < width / 2 ? pixel + 12 + "px" : "auto";
    tip.style.right = pixel < width / 2 ? "auto" : width - pixel + 12 + "px";
    chart.classList.add("read");
  };
  const hide = () => { chart.classList.remove("read"); mark.removeAttribute("d"); tip.replaceChildren(); };

  chart.addEventListener("pointermove", e => {
    const box = chart.getBoundingClientRect();
    show((e.clientX - box.left) / box.width * svg.viewBox.baseVal.width);
  });
  chart.addEventListener("pointerleave", hide);
  chart.addEventListener("blur", hide);
  chart.addEventListener("keydown", e => {
    const step = (right - left) / (x.unit === "" ? x.to - x.from : 100);
    const to = { ArrowLeft: at - step, ArrowRight: at + step, Home: left, End: right }[e.key];
    if (e.key === "Escape") hide();
    if (to === undefined) return;
    e.preventDefault();
    show(to);
  });
}
