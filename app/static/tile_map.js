// The tile map: looks closer by wheel, keys or a box; paints tiles by click, box or freehand; tells what is under the
// pointer. It draws what the server sent, scaled while the next picture is on its way. Positions are tokens.

const LEFT = 66, RIGHT = 14, TOP = 8, BOTTOM = 26, LEAST = 8, STILL = 160;

export default function ({ data, parentElement, setTriggerValue }) {
  const map = (parentElement.psMap ??= new TileMap(parentElement));
  map.send = (what) => setTriggerValue('acted', what);
  map.take(data);
  watchTheme(parentElement, setTriggerValue); // of theme_watch.py, which stands before this
}

class TileMap {
  constructor(root) {
    this.canvas = root.querySelector('canvas');
    this.tip = root.querySelector('.tip');
    this.live = root.querySelector('.live');
    this.pen = this.canvas.getContext('2d');
    this.picture = new Image();
    this.picture.onload = () => { this.ready = true; this.draw(); this.canvas.dataset.drawn = this.drawings = (this.drawings ?? 0) + 1; };
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    const hear = (name, what, options) => this.canvas.addEventListener(name, what.bind(this), options);
    hear('pointerdown', this.down);
    hear('pointermove', this.move);
    hear('pointerup', this.up);
    hear('pointercancel', this.stop);
    hear('pointerleave', () => { this.tip.hidden = true; if (!this.from) { this.at = null; this.draw(); } });
    hear('dblclick', () => this.send({ kind: 'whole' }));
    hear('wheel', this.wheel, { passive: false });
    hear('keydown', this.key);
    hear('blur', () => { this.tip.hidden = true; });
  }

  take(data) {
    this.data = data;
    this.view = { rows: [...data.rows.view], keys: [...data.keys.view] };
    this.canvas.setAttribute('aria-label', data.alt);
    this.canvas.dataset.view = [...this.view.rows, ...this.view.keys].join();
    if (this.image === data.image) return this.draw();
    this.image = data.image;
    this.ready = false;
    this.picture.src = `data:image/png;base64,${data.image}`;
  }

  // Where the map lies on the canvas, in CSS pixels: tokens are square unless one side is four times the other.
  place() {
    const wide = this.canvas.clientWidth - LEFT - RIGHT, tall = this.canvas.clientHeight - TOP - BOTTOM;
    const [rows, keys] = ['rows', 'keys'].map((side) => this.view[side][1] - this.view[side][0]);
    const square = rows / keys >= 0.25 && rows / keys <= 4;
    const scale = Math.min(wide / keys, tall / rows);
    const w = square ? keys * scale : wide, h = square ? rows * scale : tall;
    return { x: LEFT + (wide - w) / 2, y: TOP, w, h };
  }

  pixel(side, token) {
    const p = this.place(), [start, stop] = this.view[side];
    return side === 'keys' ? p.x + ((token - start) / (stop - start)) * p.w
                           : p.y + ((token - start) / (stop - start)) * p.h;
  }

  token(event) {
    const p = this.place(), box = this.canvas.getBoundingClientRect();
    const at = (side, share) => {
      const [start, stop] = this.view[side];
      return Math.min(Math.max(start + share * (stop - start), start), stop - 1e-6);
    };
    return { row: at('rows', (event.clientY - box.top - p.y) / p.h),
             key: at('keys', (event.clientX - box.left - p.x) / p.w) };
  }

  draw() {
    const ratio = window.devicePixelRatio || 1, style = getComputedStyle(this.canvas), pen = this.pen;
    const colour = (name) => style.getPropertyValue(`--ps-${name}`).trim();
    const [wide, tall] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (!wide || !this.data) return;
    if (this.canvas.width !== Math.round(wide * ratio)) this.canvas.width = Math.round(wide * ratio);
    if (this.canvas.height !== Math.round(tall * ratio)) this.canvas.height = Math.round(tall * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, wide, tall);
    const p = this.place(), { rows, keys } = this.data;
    this.canvas.dataset.place = [p.x, p.y, p.w, p.h].join();
    pen.save();
    pen.beginPath();
    pen.rect(p.x, p.y, p.w, p.h);
    pen.clip();
    pen.fillStyle = colour('background');
    pen.fillRect(p.x, p.y, p.w, p.h);
    if (this.ready) {
      const x = this.pixel('keys', keys.start), y = this.pixel('rows', rows.start);
      const w = this.pixel('keys', keys.start + keys.cells * keys.size) - x;
      const h = this.pixel('rows', rows.start + rows.cells * rows.size) - y;
      pen.imageSmoothingEnabled = w * ratio < keys.cells || h * ratio < rows.cells;  // else thin bands fall between
      pen.imageSmoothingQuality = 'high';
      pen.drawImage(this.picture, x, y, w, h);
    }
    pen.globalAlpha = 0.13;
    pen.fillStyle = colour('ink');
    for (const [side, axis] of [['rows', rows], ['keys', keys]]) {
      if (!axis.rule) continue;
      for (let at = Math.ceil(this.view[side][0] / axis.rule) * axis.rule; at < this.view[side][1]; at += axis.rule) {
        const line = Math.round(this.pixel(side, at));
        if (side === 'rows') pen.fillRect(p.x, line, p.w, 1); else pen.fillRect(line, p.y, 1, p.h);
      }
    }
    pen.globalAlpha = 1;
    this.overlay(pen, colour);
    pen.restore();
    pen.strokeStyle = colour('line');
    pen.lineWidth = 1;
    pen.strokeRect(Math.round(p.x) - 0.5, p.y - 0.5, Math.round(p.w) + 1, Math.round(p.h) + 1);
    pen.font = `13px ${style.fontFamily}`;
    pen.fillStyle = colour('ink');
    pen.textBaseline = 'middle';
    for (const [at, words] of rows.ticks) {
      const y = this.pixel('rows', at);
      if (y < p.y - 1 || y > p.y + p.h + 1) continue;
      pen.textAlign = 'right';
      pen.fillText(words, p.x - 8, y);
      pen.fillRect(p.x - 5, Math.round(y), 4, 1);
    }
    pen.textBaseline = 'top';
    pen.textAlign = 'center';
    for (const [at, words] of keys.ticks) {
      const x = this.pixel('keys', at);
      if (x < p.x - 1 || x > p.x + p.w + 1) continue;
      pen.fillText(words, x, p.y + p.h + 8);
      pen.fillRect(Math.round(x), p.y + p.h + 1, 1, 4);
    }
    pen.save();
    pen.fillStyle = colour('quiet');
    pen.translate(Math.max(12, p.x - 52), p.y + p.h / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText('query row (token)', 0, -6);
    pen.restore();
  }

  // The box or the tiles being drawn, and the tile under the pointer or the keyboard's cursor.
  overlay(pen, colour) {
    const tool = this.from ? this.begun : this.data.tool, away = tool === 'remove', paints = away || tool === 'add';
    const fill = (box) => {
      const x = this.pixel('keys', box.keys[0]), y = this.pixel('rows', box.rows[0]);
      const w = this.pixel('keys', box.keys[1]) - x, h = this.pixel('rows', box.rows[1]) - y;
      pen.globalAlpha = paints ? 0.55 : 0.12;
      pen.fillStyle = colour(paints ? (away ? 'background' : 'partial') : 'ink');
      pen.fillRect(x, y, w, h);
      pen.globalAlpha = 1;
      pen.strokeStyle = colour(away ? 'lost' : 'ink');
      pen.strokeRect(x + 0.5, y + 0.5, Math.max(w - 1, 1), Math.max(h - 1, 1));
    };
    if (this.drawn) for (const unit of this.drawn.values()) fill(this.boxOf(unit));
    else if (this.from && this.at && this.dragged) fill(this.box());
    else if (this.at) {
      const box = this.boxOf(this.unitAt(this.at));
      const x = this.pixel('keys', box.keys[0]), y = this.pixel('rows', box.rows[0]);
      pen.strokeStyle = colour('ink');
      pen.strokeRect(x + 0.5, y + 0.5, Math.max(this.pixel('keys', box.keys[1]) - x - 1, 2),
                     Math.max(this.pixel('rows', box.rows[1]) - y - 1, 2));
    }
  }

  unitAt({ row, key }) {
    return [Math.floor(row / this.data.rows.unit), Math.floor(key / this.data.keys.unit)];
  }

  boxOf([row, key]) {
    const ends = (n, axis) => [n * axis.unit, Math.min((n + 1) * axis.unit, axis.length)];
    return { rows: ends(row, this.data.rows), keys: ends(key, this.data.keys) };
  }

  // The dragged box in whole units.
  box() {
    const ends = (a, b, axis) => {
      const [low, high] = a < b ? [a, b] : [b, a];
      const first = Math.min(Math.max(Math.round(low / axis.unit), 0), Math.ceil(axis.length / axis.unit) - 1);
      const last = Math.max(Math.round(high / axis.unit), first + 1);
      return [first * axis.unit, Math.min(last * axis.unit, axis.length)];
    };
    return { rows: ends(this.from.row, this.at.row, this.data.rows),
             keys: ends(this.from.key, this.at.key, this.data.keys) };
  }

  down(event) {
    if (event.button === 1) { this.pan = { ...this.token(event), view: structuredClone(this.view) }; }
    else if (event.button === 0) {
      this.from = this.token(event);
      this.begun = this.data.tool;  // another one may come while the pointer is down
      this.pressed = [event.clientX, event.clientY];
      this.dragged = false;
      if (event.shiftKey && ['add', 'remove'].includes(this.data.tool)) this.drawn = new Map();
    } else return;
    event.preventDefault();
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.move(event);
  }

  move(event) {
    this.at = this.token(event);
    if (this.pan) {
      this.view = structuredClone(this.pan.view);
      const now = this.token(event);
      this.look({ rows: this.pan.view.rows.map((v) => v + this.pan.row - now.row),
                  keys: this.pan.view.keys.map((v) => v + this.pan.key - now.key) });
    }
    if (this.from) {
      const [x, y] = this.pressed;
      this.dragged ||= Math.hypot(event.clientX - x, event.clientY - y) > 4;
      if (this.drawn) this.stroke(event);
    }
    this.tell(event.clientX, event.clientY);
    this.draw();
  }

  // Freehand: every unit between the last place of the pointer and this one.
  stroke(event) {
    const last = this.last ?? event, steps = Math.ceil(Math.hypot(event.clientX - last.clientX,
                                                                  event.clientY - last.clientY) / 2) || 1;
    for (let n = 1; n <= steps; n++) {
      const along = (name) => last[name] + ((event[name] - last[name]) * n) / steps;
      const unit = this.unitAt(this.token({ clientX: along('clientX'), clientY: along('clientY') }));
      this.drawn.set(unit.join(), unit);
    }
    this.last = { clientX: event.clientX, clientY: event.clientY };
  }

  up(event) {
    if (this.from) {
      if (this.drawn) this.send({ kind: 'drawn', units: [...this.drawn.values()],
                                   tool: this.begun, size: [this.data.rows.unit, this.data.keys.unit] });
      else if (this.dragged) this.send({ kind: 'box', tool: this.begun, ...this.box() });
      else this.click(this.token(event), this.begun);
    }
    this.stop();
  }

  stop() {
    this.from = this.drawn = this.last = this.pan = null;
    this.draw();
  }

  click(at, tool = this.data.tool) {
    if (tool === 'why') {
      const [row, key] = [Math.floor(at.row), Math.floor(at.key)];
      this.send({ kind: 'box', tool, rows: [row, row + 1], keys: [key, key + 1] });
    } else if (tool !== 'zoom') this.send({ kind: 'box', tool, ...this.boxOf(this.unitAt(at)) });
  }

  wheel(event) {
    event.preventDefault();
    this.zoom(this.token(event), Math.exp(event.deltaY * 0.0015));
  }

  zoom(at, factor) {
    const around = (side, token) => {
      const [start, stop] = this.view[side], length = this.data[side].length;
      const span = Math.min(Math.max((stop - start) * factor, Math.min(LEAST, length)), length);
      const first = token - ((token - start) / (stop - start)) * span;
      return [first, first + span];
    };
    this.look({ rows: around('rows', at.row), keys: around('keys', at.key) });
  }

  // Show another part at once, and ask for its picture when the wheel or the keys have come to rest.
  look(view) {
    for (const side of ['rows', 'keys']) {
      const length = this.data[side].length, span = Math.min(view[side][1] - view[side][0], length);
      const start = Math.min(Math.max(view[side][0], 0), length - span);
      this.view[side] = [start, start + span];
    }
    this.draw();
    clearTimeout(this.rest);
    this.rest = setTimeout(() => {
      const ends = (side) => {
        const start = Math.floor(this.view[side][0]);
        return [start, Math.min(Math.max(Math.round(this.view[side][1]), start + 1), this.data[side].length)];
      };
      this.send({ kind: 'view', rows: ends('rows'), keys: ends('keys') });
    }, STILL);
  }

  key(event) {
    const { rows, keys } = this.data, middle = ([start, stop]) => (start + stop) / 2;
    this.at ??= { row: middle(this.view.rows), key: middle(this.view.keys) };
    const step = event.shiftKey ? 8 : 1;
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (moves[event.key]) {
      const [down, right] = moves[event.key];
      const within = (token, length) => Math.min(Math.max(token, 0), length - 1);
      this.at = { row: within(this.at.row + down * step * rows.unit, rows.length),
                  key: within(this.at.key + right * step * keys.unit, keys.length) };
      const follow = (side, token) => {
        const [start, stop] = this.view[side];
        const by = token < start ? token - start : token >= stop ? token - stop + this.data[side].unit : 0;
        return [start + by, stop + by];
      };
      const view = { rows: follow('rows', this.at.row), keys: follow('keys', this.at.key) };
      if (view.rows[0] !== this.view.rows[0] || view.keys[0] !== this.view.keys[0]) this.look(view);
    } else if (event.key === 'Enter' || event.key === ' ') {
      if (this.data.tool === 'zoom') this.zoom(this.at, 0.5); else this.click(this.at);
    } else if (event.key === '+' || event.key === '=') this.zoom(this.at, 0.5);
    else if (event.key === '-') this.zoom(this.at, 2);
    else if (event.key === '0') this.send({ kind: 'whole' });
    else return;
    event.preventDefault();
    event.stopPropagation();
    const box = this.canvas.getBoundingClientRect();
    this.tell(box.left + this.pixel('keys', this.at.key), box.top + this.pixel('rows', this.at.row));
    this.live.textContent = this.tip.innerText;
    this.draw();
  }

  // What is under the pointer, in words beside it.
  tell(x, y) {
    const told = this.data.told, { row, key } = this.at;
    const place = (edges, token) => {
      let low = 0, high = edges.length - 2;
      while (low < high) { const half = (low + high + 1) >> 1; if (edges[half] <= token) low = half; else high = half - 1; }
      return low;
    };
    const r = place(told.rows, row), k = place(told.keys, key), at = r * (told.keys.length - 1) + k;
    const [r0, r1, k0, k1] = [told.rows[r], told.rows[r + 1], told.keys[k], told.keys[k + 1]];
    const span = (name, a, b, offset) => {
      const range = (from) => b - a === 1 ? (a + from).toLocaleString('en')
        : `${(a + from).toLocaleString('en')} to ${(b - 1 + from).toLocaleString('en')}`;
      return `${name}${b - a === 1 ? '' : 's'} ${range(0)}${offset ? ` (position ${range(offset)})` : ''}`;
    };
    const kind = { e: 'empty', p: 'partial', f: 'full' }[told.kind[at]], area = (r1 - r0) * (k1 - k0);
    const pairs = told.pairs[at], lines = [span('query row', r0, r1, this.data.offset), span('key', k0, k1, 0)];
    if (area === 1) lines.push(`${pairs ? 'allowed' : 'not allowed'}, in ${kind === 'empty' ? 'an' : 'a'} ${kind} tile`);
    else lines.push(`${kind} tile${told.several ? 's' : ''}` + (kind === 'partial'
      ? `: ${pairs.toLocaleString('en')} of ${area.toLocaleString('en')} pairs (${(100 * pairs / area).toPrecision(3)} %)` : ''));
    const why = told.why[at];
    if (why >= 0) {
      const [i, j] = [Math.floor((r0 + r1) / 2), Math.floor((k0 + k1) / 2)];
      lines.push(`${area === 1 ? '' : `query ${i.toLocaleString('en')}, key ${j.toLocaleString('en')}: `}${told.words[why]}`);
    }
    this.tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement('div'), { textContent: line })));
    this.tip.hidden = false;
    const frame = this.canvas.getBoundingClientRect(), tip = this.tip.getBoundingClientRect();
    const left = x - frame.left + 16 + tip.width > frame.width ? x - frame.left - 12 - tip.width : x - frame.left + 16;
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${Math.min(Math.max(0, y - frame.top + 14), frame.height - tip.height)}px`;
  }
}
