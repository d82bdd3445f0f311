// Charts of the sections below the timeline: lines with bands, and heat maps, as SVG.
const SVG = 'http://www.w3.org/2000/svg';
const SHADES = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#7b5ea7'];
const DASHES = {solid: '', dashed: '6 4', faint: ''};

function node(tag, parent, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent.appendChild(made);
  return made;
}

function number(value, share) {
  if (share) return `${+(100 * value).toFixed(1)} %`;
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)} M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)} k`;
  return String(+value.toPrecision(3));
}

const shade = (curve, names) => curve.style === 'faint' ? '#9aa5b1' : SHADES[names.indexOf(curve.name) % SHADES.length];

function legend(box, panels) {
  const names = [...new Set(panels.flatMap((panel) => (panel.curves || []).map((curve) => curve.name)))];
  if (names.length < 2) return names;
  const words = element('p', box, {class: 'legend'});
  names.forEach((name) => {
    const item = element('span', words);
    const curve = panels.flatMap((panel) => panel.curves || []).find((one) => one.name === name);
    const sample = curve.style === 'dashed' ? 'dashed' : 'solid';
    const thick = curve.style === 'faint' ? 1 : 3;
    element('i', item, {style: `border-top: ${thick}px ${sample} ${shade(curve, names)}`});
    item.append(name);
  });
  return names;
}

function drawLines(box, panel, names, width) {
  const height = 190, left = 46, right = 22, top = 8, bottom = 34;
  const figure = element('figure', box, {class: 'panel'});
  element('h4', figure, {text: panel.share || !panel.y_label ? panel.title : `${panel.title} [${panel.y_label}]`});
  const svg = node('svg', figure, {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': panel.title});
  const points = panel.curves.flatMap((curve) => curve.x.map((x, k) => [x, curve.y[k]])).filter(([, y]) => y !== null);
  const ends = panel.curves.flatMap((curve) => [...curve.low, ...curve.high]).filter((y) => y !== null);
  if (!points.length) {
    node('text', svg, {x: width / 2, y: height / 2, class: 'none'}, panel.note || 'no figures');
    return;
  }
  const xs = panel.curves.flatMap((curve) => curve.x), ys = [...points.map(([, y]) => y), ...ends];
  const scaled = panel.logarithmic_x ? Math.log : (x) => x;
  const [x0, x1] = [scaled(Math.min(...xs)), scaled(Math.max(...xs))];
  let [y0, y1] = [Math.min(0, ...ys), Math.max(...ys)];
  if (panel.share) y1 = y1 > 0.5 ? 1 : Math.max(1.1 * y1, 0.05);
  if (y1 - y0 < 1e-9) y1 = y0 + 1;
  if (!panel.share) y1 += 0.05 * (y1 - y0);
  const X = (x) => left + (width - left - right) * (scaled(x) - x0) / Math.max(x1 - x0, 1e-9);
  const Y = (y) => height - bottom - (height - top - bottom) * (y - y0) / (y1 - y0);
  for (const y of ticks([y0, y1], 4).found) {
    node('line', svg, {x1: left, x2: width - right, y1: Y(y), y2: Y(y), class: 'grid'});
    node('text', svg, {x: left - 5, y: Y(y) + 4, class: 'y'}, number(y, panel.share));
  }
  const at = panel.logarithmic_x ? [...new Set(xs)] : ticks([x0, x1], 4).found;
  for (const x of at) node('text', svg, {x: X(x), y: height - bottom + 15, class: 'x'}, number(x));
  node('text', svg, {x: (left + width - right) / 2, y: height - 3, class: 'x'}, panel.x_label);
  panel.curves.forEach((curve) => {
    const colour = shade(curve, names);
    if (curve.low.length) {
      const known = curve.x.map((x, k) => k).filter((k) => curve.low[k] !== null && curve.high[k] !== null);
      const edge = [...known.map((k) => [curve.x[k], curve.high[k]]),
        ...known.reverse().map((k) => [curve.x[k], curve.low[k]])];
      node('path', svg, {d: path(edge, X, Y), fill: colour, 'fill-opacity': 0.16});
    }
    const line = path(curve.x.map((x, k) => [x, curve.y[k]]), X, Y);
    const width = curve.style === 'faint' ? 1 : 2;
    const look = {stroke: colour, 'stroke-width': width, 'stroke-dasharray': DASHES[curve.style]};
    node('path', svg, {d: line, fill: 'none', ...look});
  });
  if (panel.note) node('text', svg, {x: left + 6, y: top + 12, class: 'note'}, panel.note);
  if (panel.about) element('figcaption', figure, {text: panel.about});
}

function path(points, X, Y) {
  let text = '', pen = 'M';
  for (const [x, y] of points) {
    if (y === null || y === undefined) { pen = 'M'; continue; }
    text += `${pen}${X(x).toFixed(1)} ${Y(y).toFixed(1)}`;
    pen = 'L';
  }
  return text;
}

function drawHeat(box, map) {
  const cell = [58, 22], left = 10, wide = 9 * Math.max(...map.rows.map((row) => row.length)) * 0.72 + left;
  const tall = 3.6 * Math.max(...map.columns.map((column) => column.length)) + 24;
  const width = wide + cell[0] * map.columns.length + 8, height = cell[1] * map.rows.length + tall + 14;
  const figure = element('figure', box, {class: 'panel wide'});
  element('h4', figure, {text: `${map.title} [${map.unit}]`});
  const svg = node('svg', figure, {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': map.title,
    style: `max-width:${width}px`});
  const known = map.values.flat().filter((value) => value !== null);
  const most = Math.max(...known, 1e-9);
  map.values.forEach((row, j) => {
    const y = cell[1] * j;
    node('text', svg, {x: wide - 6, y: y + 15, class: 'y'}, map.rows[j]);
    row.forEach((value, k) => {
      const share = value === null ? 0 : value / most, x = wide + cell[0] * k;
      node('rect', svg, {x, y, width: cell[0] - 2, height: cell[1] - 2, rx: 3,
        fill: value === null ? '#eef1f4' : `hsl(28 ${60 + 25 * share}% ${95 - 52 * share}%)`});
      if (value !== null) {
        const tone = share > 0.6 ? '#fff' : INK;
        node('text', svg, {x: x + cell[0] / 2 - 1, y: y + 15, class: 'x', fill: tone, style: `fill:${tone}`}, number(value));
      }
    });
  });
  map.columns.forEach((column, k) => {
    const x = wide + cell[0] * (k + 0.5), y = cell[1] * map.rows.length + 12;
    node('text', svg, {x, y, class: 'y', transform: `rotate(-32 ${x} ${y})`}, column);
  });
  node('text', svg, {x: wide + 2, y: height - 3, class: 'unit'}, `across: ${map.x_label}; down: ${map.y_label}`);
}

function drawCharts() {
  for (const box of document.querySelectorAll('[data-chart]')) {
    const panels = data.charts[box.dataset.chart] || [];
    const names = legend(box, panels);
    const grid = element('div', box, {class: panels.length > 1 ? 'panels' : 'panels one'});
    for (const panel of panels) {
      if (panel.curves) drawLines(grid, panel, names, panels.length > 1 ? 330 : 700);
      else drawHeat(grid, panel);
    }
  }
}
