// What the page does: level of detail, the moment, the keyboard, light and dark. Plots and tooltips are Bokeh's.
"use strict";

const stowplan = (() => {
  const DETAIL = 500; // rectangles in a map at a time; page.py makes an image where there may be more
  const POINTS = 1500; // of the curve of live bytes
  const ROWS = 200; // of the table of live blocks
  const STILL_MS = 120; // without a change, and the view counts as still
  const THEMES = {
    light: { paper: "#ffffff", ink: "#1b2a34", soft: "#5d6d77", line: "#dfe5e8" },
    dark: { paper: "#12191e", ink: "#e3eaee", soft: "#9aaab3", line: "#2b3840" },
  };

  let model, x, y, blocks, live, older, escaped, sites, colours, maps, plots, moments, whole, tick;

  function humanBytes(count) {
    let k = 0;
    while (count >= 1024 && k < 4) {
      count /= 1024;
      k += 1;
    }
    const digits = k === 0 || count >= 99.95 ? 0 : 1;
    const shown = count.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    return `${shown} ${["B", "KiB", "MiB", "GiB", "TiB"][k]}`;
  }

  function lifetime(row) {
    const [a, b, period] = [blocks.start[row], blocks.end[row], live.length];
    const end = b > period ? `${(b - period).toLocaleString("en")} of the next step` : b.toLocaleString("en");
    return `${a.toLocaleString("en")} to ${end}`;
  }

  const siteOf = (row) => (blocks.site[row] < 0 ? "not recorded" : sites[blocks.site[row]]);

  // ---------------------------------------------------------------------------------------------- level of detail

  // The largest pieces in view, and half a view to both sides, become rectangles. Pieces are sorted by area.
  function drawMap({ pieces, detail, image }) {
    const data = { left: [], right: [], bottom: [], top: [], colour: [], number: [], bytes: [], place: [], life: [], site: [] };
    const margin = (x.end - x.start) / 2;
    let drawn = 0;
    let leftOut = false;
    for (let k = 0; k < pieces.row.length; k++) {
      if (pieces.end[k] <= x.start - margin || pieces.start[k] >= x.end + margin) continue;
      const row = pieces.row[k];
      const bottom = pieces.address[k];
      const top = bottom + blocks.height[row];
      if (top <= y.start || bottom >= y.end) continue;
      if (drawn === DETAIL) {
        leftOut = true;
        break;
      }
      drawn += 1;
      data.left.push(pieces.start[k]);
      data.right.push(pieces.end[k]);
      data.bottom.push(bottom);
      data.top.push(top);
      data.colour.push(colours[blocks.colour[row]]);
      data.number.push(blocks.number[row]);
      data.bytes.push(humanBytes(blocks.size[row]));
      data.place.push(humanBytes(bottom));
      data.life.push(lifetime(row));
      data.site.push(siteOf(row));
    }
    if (image) image.visible = leftOut;
    detail.data = data;
  }

  // The curve in view, the fullest moment of each bucket: older blocks, escaped ones upon them, planned ones upon both.
  function drawCurve() {
    const first = Math.max(0, Math.floor(x.start));
    const last = Math.min(live.length, Math.ceil(x.end) + 1);
    const bucket = Math.max(1, Math.ceil((last - first) / POINTS));
    const data = { x: [], older: [], kept: [], y: [] };
    const total = (k) => older[k] + escaped[k] + live[k];
    for (let t = first - (first % bucket); t < last; t += bucket) {
      let most = t;
      for (let k = t; k < Math.min(t + bucket, live.length); k++) if (total(k) > total(most)) most = k;
      data.x.push(t, t + bucket); // a stair
      data.older.push(older[most], older[most]);
      data.kept.push(older[most] + escaped[most], older[most] + escaped[most]);
      data.y.push(total(most), total(most));
    }
    model("curve").data = data;
  }

  function draw() {
    maps.forEach(drawMap);
    drawCurve();
  }

  // While the view moves, what is drawn moves with it, and the image shows what was not.
  let still;
  function moved() {
    for (const { image } of maps) if (image && !image.visible) image.visible = true;
    clearTimeout(still);
    still = setTimeout(draw, STILL_MS);
  }

  // ----------------------------------------------------------------------------------------------------- the moment

  function isAlive(row, t) {
    const [start, end, later] = [blocks.start[row], blocks.end[row], t + live.length];
    return (start <= t && t < end) || (start <= later && later < end);
  }

  function cell(row, text, number) {
    const td = row.insertCell();
    td.textContent = text;
    if (number) td.className = "number";
    return td;
  }

  function show(t) {
    tick = Math.max(0, Math.min(live.length - 1, Math.floor(t)));
    for (const line of moments) line.location = tick;
    const alive = [];
    for (let row = 0; row < blocks.size.length; row++) if (isAlive(row, tick)) alive.push(row);
    alive.sort((a, b) => blocks.size[b] - blocks.size[a]);
    const total = alive.reduce((sum, row) => sum + blocks.size[row], 0);
    const beside = older[tick] + escaped[tick];
    const kept = beside ? `; beside them ${humanBytes(older[tick])} older, ${humanBytes(escaped[tick])} escaped` : "";
    document.getElementById("moment").textContent =
      `tick ${tick.toLocaleString("en")}: ${alive.length.toLocaleString("en")} blocks, ${humanBytes(total)}${kept}`;
    document.getElementById("tick").value = tick;
    const body = document.createElement("tbody");
    for (const row of alive.slice(0, ROWS)) {
      const line = body.insertRow();
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = blocks.number[row];
      button.title = "Show this block in the maps";
      button.addEventListener("click", () => zoomTo(row));
      cell(line, "").append(button);
      cell(line, humanBytes(blocks.size[row]), true);
      cell(line, humanBytes(blocks.offset[row]), true);
      cell(line, lifetime(row));
      cell(line, siteOf(row));
    }
    if (alive.length > ROWS) cell(body.insertRow(), `and ${(alive.length - ROWS).toLocaleString("en")} smaller ones`).colSpan = 5;
    document.querySelector("#alive tbody").replaceWith(body);
  }

  // ------------------------------------------------------------------------------------------------------- the view

  function move(range, [low, high], start, end) {
    const span = Math.min(end - start, high - low);
    start = Math.max(low, Math.min(high - span, start));
    range.setv({ start, end: start + span });
  }

  function pan(range, limits, part) {
    const by = (range.end - range.start) * part;
    move(range, limits, range.start + by, range.end + by);
  }

  function zoom(factor) {
    const at = tick >= x.start && tick <= x.end ? tick : (x.start + x.end) / 2;
    move(x, whole.x, at - (at - x.start) * factor, at + (x.end - at) * factor);
    const middle = (y.start + y.end) / 2;
    move(y, whole.y, middle - (middle - y.start) * factor, middle + (y.end - middle) * factor);
  }

  function zoomTo(row) {
    const [start, end] = [blocks.start[row], Math.min(blocks.end[row], live.length)];
    const [low, tall] = [blocks.offset[row], blocks.height[row]];
    move(x, whole.x, start - (end - start), end + (end - start));
    move(y, whole.y, low - 2 * tall, low + 3 * tall);
  }

  const KEYS = {
    ArrowLeft: () => pan(x, whole.x, -0.1),
    ArrowRight: () => pan(x, whole.x, 0.1),
    ArrowUp: () => pan(y, whole.y, 0.1),
    ArrowDown: () => pan(y, whole.y, -0.1),
    "+": () => zoom(1 / 1.4),
    "-": () => zoom(1.4),
    0: () => {
      move(x, whole.x, ...whole.x);
      move(y, whole.y, ...whole.y);
    },
    ",": () => show(tick - 1),
    ".": () => show(tick + 1),
    p: () => show(Number(document.body.dataset.peakTick)),
  };

  function listen() {
    const element = document.getElementById("maps");
    element.addEventListener("keydown", (event) => {
      if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
      KEYS[event.key]();
      event.preventDefault();
    });
    for (const button of document.querySelectorAll("[data-key]"))
      button.addEventListener("click", KEYS[button.dataset.key]);
    document.getElementById("tick").addEventListener("change", (event) => show(Number(event.target.value)));
    for (const plot of plots) plot.on_event("tap", (event) => show(event.x));
    for (const range of [x, y]) range.change.connect(moved);
  }

  // ------------------------------------------------------------------------------------------------- light and dark

  function paint(name) {
    const { paper, ink, soft, line } = THEMES[name];
    document.documentElement.dataset.theme = name;
    for (const plot of plots) {
      plot.setv({ background_fill_color: paper, outline_line_color: line });
      for (const part of [...plot.left, ...plot.below, ...plot.center]) {
        if (part.type.endsWith("Axis"))
          part.setv({
            axis_label_text_color: ink,
            major_label_text_color: soft,
            axis_line_color: line,
            major_tick_line_color: line,
            minor_tick_line_color: null,
          });
        if (part.type === "Grid") part.setv({ grid_line_color: line });
      }
    }
  }

  function follow() {
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    paint(dark.matches ? "dark" : "light");
    dark.addEventListener("change", () => paint(dark.matches ? "dark" : "light"));
    document.getElementById("theme").addEventListener("click", () =>
      paint(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
    );
  }

  function start() {
    const doc = Bokeh.documents[Bokeh.documents.length - 1];
    model = (name) => doc.get_model_by_name(name);
    [x, y] = [model("clock"), model("address")];
    whole = { x: [...x.bounds], y: [...y.bounds] };
    blocks = model("blocks").data;
    ({ bytes: live, older, escaped } = model("live").data);
    sites = model("sites").data.name;
    colours = model("colours").data.colour;
    maps = ["plan", "pool"].map((name) => ({
      pieces: model(`${name}_pieces`).data,
      detail: model(`${name}_detail`),
      image: model(`${name}_image`),
    }));
    plots = doc.roots().flatMap((column) => column.children);
    moments = plots.flatMap((plot) => plot.center.filter((part) => part.tags.includes("moment")));
    follow();
    draw();
    listen();
    show(Number(document.body.dataset.peakTick));
    document.body.dataset.ready = "yes";
  }

  return { start, draw, show };
})();
