// Data of the page, the cursor that scene, plots and events share, and small helpers.
const data = JSON.parse(document.getElementById('page-data').textContent);
const clock = data.clock;
const SIGNS = {bad: '✖', doubt: '▲', note: '●', good: '✔'};
const TONES = {bad: '#b3362b', doubt: '#b8700b', note: '#4d6f8f', good: '#1f7a62'};
const INK = '#1d2733', FAINT = '#6b7785', LINE = '#dfe4e9';

// Returns a packed table as columns of numbers; NaN where there is none.
function unpacked(table) {
  if (!table) return null;
  const bytes = Uint8Array.from(atob(table.numbers), (letter) => letter.charCodeAt(0));
  const whole = new DataView(bytes.buffer);
  const rows = bytes.length / 2 / table.columns;
  return table.middle.map((middle, column) => Float64Array.from({length: rows}, (_, row) => {
    const number = whole.getInt16(2 * (row * table.columns + column), true);
    return number === -32768 ? NaN : middle + table.step[column] * number;
  }));
}

function element(tag, parent, options = {}) {
  const made = document.createElement(tag);
  const {text, ...rest} = options;
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(rest)) made.setAttribute(name, value);
  if (parent) parent.appendChild(made);
  return made;
}

// Gives a canvas the size of its box in device pixels; returns its context, scaled to CSS pixels, and that size.
function fitted(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext('2d');
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return {pen, width, height};
}

const seconds = (time) => `${time.toFixed(clock && clock.step_s < 0.1 ? 2 : 1)} s`;

function shown(value, unit) {
  if (!Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${unit}`.trim();
}

// One time for all views; listeners are told of each change.
class Cursor {
  constructor(begin, end) {
    Object.assign(this, {begin, end, time: begin, window: [begin, end], speed: 1, playing: false});
    this.moved = [];
    this.zoomed = [];
  }

  set(time) {
    this.time = Math.min(this.end, Math.max(this.begin, time));
    const [low, high] = this.window;
    if (this.time < low || this.time > high) {
      this.zoom(high - low, this.time);
    }
    for (const tell of this.moved) tell(this.time);
  }

  // Shows a window of this length [s] around a time, inside the run.
  zoom(length, middle = this.time) {
    const whole = this.end - this.begin;
    const span = Math.min(whole, Math.max(Math.min(1, whole), length));
    const low = Math.min(this.end - span, Math.max(this.begin, middle - span / 2));
    this.window = [low, low + span];
    for (const tell of this.zoomed) tell(this.window);
  }

  // Plays until the end, in real time by `speed`.
  play(playing) {
    this.playing = playing;
    if (playing && this.time >= this.end) this.set(this.begin);
    let last = null;
    const step = (stamp) => {
      if (!this.playing) return;
      const next = this.time + (last === null ? 0 : this.speed * (stamp - last) / 1000);
      last = stamp;
      this.playing = next < this.end;
      this.set(next);
      if (this.playing) requestAnimationFrame(step);
    };
    if (playing) requestAnimationFrame(step);
    else this.set(this.time);
  }
}
