// One cursor for all maps of a page: what the pointer is at on one map is marked on the others, and read below.
// The maps look at the same part, so a place is a share of the plot's width and height on every one of them.
// `data`: maps, a CSS selector of the plots; rows and keys, {start, stop, size} in tokens; patterns, [{letter, cells}]
// with the share of each cell that is allowed, one byte a cell, 255 all of it, row by row in base64.

const LINES = "studio-cursor";

export default function ({ data, parentElement }) {
  parentElement.endCursor?.(); // drawn anew, with other data
  const readout = parentElement.querySelector("[role=status]");
  const patterns = data.patterns.map(({ letter, cells }) => ({
    letter,
    shares: Uint8Array.from(atob(cells), (character) => character.charCodeAt(0)),
  }));
  const across = Math.ceil((data.keys.stop - data.keys.start) / data.keys.size);
  const down = Math.ceil((data.rows.stop - data.rows.start) / data.rows.size);
  let place = null; // [row, key], in tokens

  const plots = () => [...document.querySelectorAll(data.maps)];
  const drawn = []; // its own lines: one that is taken down late must not take those of its successor
  const clear = () => drawn.splice(0).forEach((line) => line.remove());

  function line(left, top, width, height) {
    const made = document.createElement("div");
    made.className = LINES;
    made.style.cssText = `position:fixed;pointer-events:none;z-index:5;background:${data.colour};opacity:0.65;
      left:${left}px;top:${top}px;width:${width}px;height:${height}px`;
    document.body.append(made);
    drawn.push(made);
  }

  function show(row, key, own) {
    const here = (place = [row, key]);
    clear();
    // Maps that are being replaced are none for a moment.
    if (!plots().length) setTimeout(() => place === here && show(row, key, own), 100);
    for (const plot of plots()) {
      if (plot === own) continue;
      const box = plot.getBoundingClientRect();
      const x = ((key + 0.5 - data.keys.start) / (data.keys.stop - data.keys.start)) * box.width;
      const y = ((row + 0.5 - data.rows.start) / (data.rows.stop - data.rows.start)) * box.height;
      line(box.left, box.top + y, box.width, 1);
      line(box.left + x, box.top, 1, box.height);
    }
    const cell =
      Math.floor((row - data.rows.start) / data.rows.size) * across +
      Math.floor((key - data.keys.start) / data.keys.size);
    const shares = patterns.map(({ letter, shares }) => {
      const share = shares[cell];
      const words = share === 0 ? "nothing" : share === 255 ? "all" : `${Math.min(99, Math.max(1, Math.round(share / 2.55)))} %`;
      return `${letter} ${words}`;
    });
    const size = data.rows.size * data.keys.size === 1 ? "of this pair" : "of this cell";
    readout.textContent =
      `query row ${row.toLocaleString("en")}, key ${key.toLocaleString("en")}: ${shares.join(", ")} ${size}`;
  }

  function hide() {
    place = null;
    clear();
    readout.textContent = data.hint;
  }

  function moved(event) {
    const own = plots().find((plot) => {
      const box = plot.getBoundingClientRect();
      return event.clientX >= box.left && event.clientX < box.right && event.clientY >= box.top && event.clientY < box.bottom;
    });
    if (!own) return place && hide();
    const box = own.getBoundingClientRect();
    const at = (share, axis) => Math.min(axis.stop - 1, axis.start + Math.floor(share * (axis.stop - axis.start)));
    show(
      at((event.clientY - box.top) / box.height, data.rows),
      at((event.clientX - box.left) / box.width, data.keys),
      own,
    );
  }

  function pressed(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Escape") return hide();
    if (!step) return;
    event.preventDefault();
    const [row, key] = place ?? [data.rows.start, data.keys.start];
    const kept = (value, axis) => Math.max(axis.start, Math.min(axis.stop - 1, value));
    show(kept(row + step[0] * data.rows.size, data.rows), kept(key + step[1] * data.keys.size, data.keys), null);
  }

  document.addEventListener("pointermove", moved);
  document.addEventListener("scroll", hide, true);
  readout.addEventListener("keydown", pressed);
  readout.addEventListener("blur", hide);
  hide();
  parentElement.endCursor = () => {
    document.removeEventListener("pointermove", moved);
    document.removeEventListener("scroll", hide, true);
    readout.removeEventListener("keydown", pressed);
    readout.removeEventListener("blur", hide);
    place = null;
    clear();
  };
  return parentElement.endCursor;
}
