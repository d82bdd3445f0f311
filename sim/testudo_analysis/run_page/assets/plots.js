// Small multiples over time: one row for each robot, events as lanes above them, one cursor through all.
class Track {
  constructor(parent, label, {colour = '', height = 46, cursor, swatch = ''}) {
    this.row = element('div', parent, {class: 'row'});
    const name = element('span', this.row, {class: 'label'});
    if (swatch) element('b', name, {text: swatch, style: `color:${colour}`});
    else if (colour) element('i', name, {style: `background:${colour}`});
    element('span', name, {text: label});
    this.box = element('div', this.row, {class: 'track', style: `height:${height}px`});
    this.canvas = element('canvas', this.box);
    this.mark = element('i', this.box, {class: 'cursor'});
    this.value = element('output', this.row, {'aria-live': 'off'});
    this.cursor = cursor;
    const jump = (event) => {
      const bounds = this.box.getBoundingClientRect();
      const [low, high] = cursor.window;
      cursor.set(low + (high - low) * (event.clientX - bounds.left) / bounds.width);
    };
    this.box.addEventListener('pointerdown', (event) => {
      this.box.setPointerCapture(event.pointerId);
      jump(event);
    });
    this.box.addEventListener('pointermove', (event) => { if (event.buttons) jump(event); });
  }

  x(time, width) {
    const [low, high] = this.cursor.window;
    return width * (time - low) / (high - low);
  }

  move(time) {
    const [low, high] = this.cursor.window;
    this.mark.style.left = `${100 * (time - low) / (high - low)}%`;
    this.box.dataset.time = time.toFixed(3);
  }
}

// Returns the times of the ticks of an axis, and its step.
function ticks([low, high], most) {
  const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= raw);
  const found = [];
  for (let time = Math.ceil(low / step) * step; time <= high + 1e-9; time += step) found.push(time);
  return {step, found};
}

class Axis extends Track {
  draw() {
    const {pen, width, height} = fitted(this.canvas);
    const {step, found} = ticks(this.cursor.window, Math.max(2, width / 90));
    pen.font = '12px system-ui, sans-serif';
    pen.fillStyle = FAINT;
    pen.textAlign = 'center';
    for (const time of found) {
      const x = this.x(time, width), text = time.toFixed(step < 1 ? 1 : 0);
      pen.fillRect(x, height - 4, 1, 4);
      const room = pen.measureText(text).width / 2;
      pen.fillText(text, Math.min(width - room, Math.max(room, x)), height - 7);
    }
  }

  show() {}
}

class Lane extends Track {
  constructor(parent, kind, events, cursor) {
    super(parent, kind, {colour: TONES[events[0].severity], swatch: SIGNS[events[0].severity], height: 20, cursor});
    this.events = events;
  }

  draw() {
    const {pen, width, height} = fitted(this.canvas);
    pen.fillStyle = '#f1f4f6';
    pen.fillRect(0, 3, width, height - 6);
    for (const event of [...this.events].reverse()) {
      const from = this.x(event.begin_s, width), to = Math.max(from + 3, this.x(event.end_s, width));
      pen.fillStyle = TONES[event.severity];
      pen.fillRect(from, event.severity === 'note' ? 6 : 3, to - from, height - (event.severity === 'note' ? 12 : 6));
    }
  }

  show(time) {
    const count = this.events.filter((event) => event.begin_s <= time && time <= event.end_s).length;
    this.value.textContent = count ? `${count} now` : '';
  }
}

class Row extends Track {
  constructor(parent, plot, row, range, colour, cursor) {
    super(parent, row.robot, {colour, cursor});
    Object.assign(this, {plot, range, colour});
    this.lines = row.lines.map((line) => ({...line, values: unpacked(line.values)[0]}));
  }

  draw() {
    const {pen, width, height} = fitted(this.canvas);
    const [low, high] = this.range;
    const y = (value) => 2 + (height - 4) * (high - value) / (high - low);
    if (low < 0 && high > 0) {
      pen.fillStyle = LINE;
      pen.fillRect(0, y(0), width, 1);
    }
    for (const limit of this.plot.limits) {
      if (limit.value > high || limit.value < low) continue;
      pen.fillStyle = TONES[limit.severity];
      pen.globalAlpha = 0.75;
      for (let x = 0; x < width; x += limit.severity === 'bad' ? width : 7) {
        pen.fillRect(x, y(limit.value), limit.severity === 'bad' ? width : 4, 1.3);
      }
      pen.globalAlpha = 1;
    }
    for (const line of this.lines) this.drawLine(pen, width, y, line);
  }

  // Draws least and largest value of each column of pixels, so that no peak is lost.
  drawLine(pen, width, y, line) {
    const [t0, t1] = this.cursor.window, [low, high] = this.range;
    const place = (x) => (t0 + (t1 - t0) * x / width - clock.begin_s) / clock.step_s;
    pen.beginPath();
    let isOn = false;
    const cut = [];
    for (let x = 0; x < width; x++) {
      const from = Math.max(0, Math.floor(place(x))), to = Math.min(clock.count - 1, Math.floor(place(x + 1)));
      let least = Infinity, most = -Infinity;
      for (let k = from; k <= to; k++) {
        const value = line.values[k];
        if (value < least) least = value;
        if (value > most) most = value;
      }
      if (least > most) { isOn = false; continue; }
      if (most > high) cut.push(x);
      const [upper, lower] = [Math.min(high, most), Math.max(low, Math.min(high, least))];
      if (isOn) pen.lineTo(x, y(upper)); else pen.moveTo(x, y(upper));
      pen.lineTo(x, y(lower));
      isOn = true;
    }
    pen.strokeStyle = line.faint ? '#aab4bf' : this.colour;
    pen.lineWidth = line.faint ? 1.2 : 1.5;
    pen.stroke();
    pen.fillStyle = TONES.bad;
    if (!this.plot.limits.length) for (const x of cut) pen.fillRect(x, 0, 1.5, 3);
  }

  show(time) {
    const k = Math.min(clock.count - 1, Math.max(0, Math.round((time - clock.begin_s) / clock.step_s)));
    const main = this.lines.find((line) => !line.faint) || this.lines[0];
    this.value.textContent = shown(main.values[k], this.plot.unit);
  }
}

// Returns the common range of all rows: far outliers and, in plots with limits, what is far above them are cut.
function commonRange(plot) {
  const values = [];
  for (const row of plot.rows) {
    for (const line of row.lines) {
      const [column] = unpacked(line.values), stride = Math.max(1, column.length >> 11);
      for (let k = 0; k < column.length; k += stride) if (Number.isFinite(column[k])) values.push(column[k]);
    }
  }
  values.sort((a, b) => a - b);
  if (!values.length) return [0, 1];
  let low = Math.min(0, values[0]), high = values[values.length - 1];
  const usual = values[Math.floor(0.99 * (values.length - 1))];
  if (usual > 0 && high > 2.5 * usual) high = 2.5 * usual;
  const limits = plot.limits.map((limit) => limit.value);
  if (limits.length) high = Math.min(Math.max(high, 1.15 * Math.max(...limits)), 3 * Math.max(...limits));
  return high - low > 1e-9 ? [low, high + 0.04 * (high - low)] : [low - 0.5, high + 0.5];
}

class Plots {
  constructor(parent, cursor) {
    this.tracks = [];
    this.cursor = cursor;
    const colours = Object.fromEntries(data.scene.bodies.map((body) => [body.name, body.colour]));
    this.lanes(element('div', parent, {class: 'lanes'}));
    const choice = element('div', parent, {class: 'choice', role: 'group', 'aria-label': 'plots'});
    data.plots.forEach((plot, index) => {
      const box = element('section', parent, {class: 'plot'});
      const button = element('button', choice, {text: plot.name, 'aria-pressed': String(index < 2)});
      box.hidden = index >= 2;
      button.addEventListener('click', () => {
        box.hidden = !box.hidden;
        button.setAttribute('aria-pressed', String(!box.hidden));
        this.draw();
      });
      this.plot(box, plot, colours);
    });
    cursor.moved.push((time) => this.move(time));
    cursor.zoomed.push(() => this.draw());
    window.addEventListener('resize', () => this.draw());
  }

  lanes(parent) {
    const kinds = new Map();
    for (const event of [...data.events].sort((a, b) => a.weight - b.weight)) {
      kinds.set(event.kind, [...(kinds.get(event.kind) || []), event]);
    }
    for (const [kind, events] of kinds) this.tracks.push(new Lane(parent, kind, events, this.cursor));
    this.tracks.push(new Axis(parent, 'time [s]', {height: 24, cursor: this.cursor}));
  }

  plot(box, plot, colours) {
    const range = commonRange(plot);
    const head = element('h3', box, {text: plot.name + (plot.unit ? ` [${plot.unit}]` : '')});
    const ends = range.map((value) => shown(value, '')).join(' to ');
    element('span', head, {class: 'about', text: `${plot.about} Each row: ${ends}.`});
    for (const limit of plot.limits) {
      const text = `${SIGNS[limit.severity]} ${limit.name} ${shown(limit.value, plot.unit)}`;
      head.append(' ');
      element('span', head, {class: 'limit', text, style: `color:${TONES[limit.severity]}`});
    }
    for (const row of plot.rows) {
      this.tracks.push(new Row(box, plot, row, range, colours[row.robot] || INK, this.cursor));
    }
    this.tracks.push(new Axis(box, '', {height: 22, cursor: this.cursor}));
  }

  draw() {
    for (const track of this.tracks) if (track.box.offsetParent) track.draw();
    this.move(this.cursor.time);
  }

  move(time) {
    for (const track of this.tracks) {
      track.move(time);
      track.show(time);
    }
  }
}
