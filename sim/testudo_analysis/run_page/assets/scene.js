// The scene in 3-D on a canvas, without WebGL: robots, predicted robots, boxes, goals, walls, obstacles, trails.
const TRAIL_S = 6, SIDES = 28, LEAST_PX = 6;
const add = (a, b, share = 1) => a.map((value, k) => value + share * b[k]);
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];

// Turns a vector by a quaternion x, y, z, w.
function turned([x, y, z, w], v) {
  const axis = [x, y, z];
  const t = cross(axis, v).map((value) => 2 * value);
  return add(add(v, t, w), cross(axis, t));
}

function shaded(colour, factor) {
  const parts = [1, 3, 5].map((k) => Math.round(parseInt(colour.slice(k, k + 2), 16) * factor));
  return `rgb(${parts.join(',')})`;
}

class Scene {
  constructor(canvas, scene) {
    this.canvas = canvas;
    this.scene = scene;
    this.bodies = scene.bodies.map((body) => ({...body, poses: unpacked(body.poses), model: unpacked(body.model)}));
    this.follow = '';
    this.look('oblique');
    this.listen();
  }

  // Places the camera: oblique, top or side.
  look(view) {
    const [low, high] = this.scene.focus_world;
    const size = [0, 1, 2].map((k) => high[k] - low[k]);
    this.view = view;
    this.lying = size[1] > 1.25 * size[0] ? -Math.PI / 2 : 0;  // a page is wide
    this.target = [0, 1, 2].map((k) => (low[k] + high[k]) / 2);
    this.azimuth = this.lying - Math.PI / 2;
    this.elevation = {top: Math.PI / 2 - 0.001, side: 0.12, oblique: this.scene.flies ? 0.5 : 0.95}[view];
    this.fit();
  }

  // Moves the camera along its view until the whole scene just fits.
  fit() {
    const [low, high] = this.scene.focus_world;
    const width = this.canvas.clientWidth || 600, height = this.canvas.clientHeight || 400;
    const corners = [0, 1, 2, 3, 4, 5, 6, 7].map((k) => [0, 1, 2].map((axis) => (k >> axis & 1 ? high : low)[axis]));
    let [near, far] = [0.2, 400];
    for (let k = 0; k < 40; k++) {
      this.distance = (near + far) / 2;
      this.aim(width, height);
      const fits = corners.every((corner) => {
        const [x, y, depth] = this.project(corner);
        return depth > 0.1 && Math.abs(x - width / 2) < 0.47 * width && Math.abs(y - height / 2) < 0.46 * height;
      });
      if (fits) far = this.distance; else near = this.distance;
    }
    this.distance = far;
  }

  listen() {
    const fingers = new Map();
    const {canvas} = this;
    canvas.addEventListener('pointerdown', (event) => {
      canvas.focus();
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
    });
    const spread = () => {
      const [a, b] = [...fingers.values()];
      return b ? Math.hypot(a[0] - b[0], a[1] - b[1]) : 0;
    };
    canvas.addEventListener('pointermove', (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      const wide = spread(), now = [event.clientX, event.clientY];
      fingers.set(event.pointerId, now);
      const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
      if (fingers.size > 1) this.zoom(wide / Math.max(1, spread()));
      else if (event.shiftKey || event.buttons === 2) this.pan(dx, dy);
      else {
        this.azimuth -= 0.006 * dx;
        this.elevation = Math.min(Math.PI / 2 - 0.001, Math.max(0.02, this.elevation + 0.006 * dy));
      }
      this.draw();
    });
    for (const name of ['pointerup', 'pointercancel']) {
      canvas.addEventListener(name, (event) => fingers.delete(event.pointerId));
    }
    canvas.addEventListener('contextmenu', (event) => event.preventDefault());
    canvas.addEventListener('wheel', (event) => {
      if (document.activeElement !== canvas) return;  // else the page scrolls
      event.preventDefault();
      this.zoom(Math.exp(0.001 * event.deltaY));
    }, {passive: false});
  }

  zoom(factor) {
    this.distance = Math.min(500, Math.max(0.3, this.distance * factor));
    this.draw();
  }

  pan(dx, dy) {
    const length = 1.2 * this.distance / this.canvas.clientHeight;
    const ahead = [-Math.cos(this.azimuth), -Math.sin(this.azimuth), 0];
    const right = cross(ahead, [0, 0, 1]);
    this.target = add(add(this.target, right, -dx * length), ahead, dy * length);
  }

  // Returns the position and attitude of a body at a time, between two samples; null where it was not seen.
  pose(columns, time) {
    if (!columns) return null;
    const place = (time - clock.begin_s) / clock.step_s;
    const k = Math.min(clock.count - 1, Math.max(0, Math.floor(place)));
    const next = Math.min(clock.count - 1, k + 1), share = Math.min(1, Math.max(0, place - k));
    if (!Number.isFinite(columns[0][k])) return null;
    const at = columns.map((column) => {
      const step = column[next] - column[k];
      return column[k] + (Number.isFinite(step) ? share * step : 0);
    });
    const turn = at.slice(3), length = Math.hypot(...turn) || 1;
    return {place: at.slice(0, 3), turn: turn.map((value) => value / length)};
  }

  aim(width, height) {
    const flat = Math.cos(this.elevation);
    const out = [flat * Math.cos(this.azimuth), flat * Math.sin(this.azimuth), Math.sin(this.elevation)];
    const eye = add(this.target, out, this.distance);
    const ahead = out.map((value) => -value);
    const right = [-Math.sin(this.azimuth), Math.cos(this.azimuth), 0];
    const up = cross(right, ahead);
    const scale = 1.37 * height;
    this.project = (point) => {
      const v = add(point, eye, -1), depth = Math.max(0.02, dot(v, ahead));
      return [width / 2 + scale * dot(v, right) / depth, height / 2 - scale * dot(v, up) / depth, depth];
    };
  }

  path(points, closed = true) {
    const {pen} = this;
    pen.beginPath();
    let isOn = false;
    for (const point of points) {
      if (!point) { isOn = false; continue; }
      const [x, y] = this.project(point);
      if (isOn) pen.lineTo(x, y); else pen.moveTo(x, y);
      isOn = true;
    }
    if (closed) pen.closePath();
  }

  fill(points, colour, alpha = 1) {
    this.path(points);
    this.pen.globalAlpha = alpha;
    this.pen.fillStyle = colour;
    this.pen.fill();
    this.pen.globalAlpha = 1;
  }

  stroke(points, colour, width = 1, {dash = [], closed = false, alpha = 1} = {}) {
    this.path(points, closed);
    Object.assign(this.pen, {globalAlpha: alpha, strokeStyle: colour, lineWidth: width, lineJoin: 'round'});
    this.pen.setLineDash(dash);
    this.pen.stroke();
    this.pen.setLineDash([]);
    this.pen.globalAlpha = 1;
  }

  // Returns a ring around a point, in the plane that a quaternion turns.
  ring(centre, radius, turn = [0, 0, 0, 1]) {
    return Array.from({length: SIDES}, (_, k) => {
      const angle = 2 * Math.PI * k / SIDES;
      return add(centre, turned(turn, [radius * Math.cos(angle), radius * Math.sin(angle), 0]));
    });
  }

  draw(time = this.time) {
    this.time = time;
    const {pen, width, height} = fitted(this.canvas);
    if (!width || !height) return;
    this.pen = pen;
    const here = this.bodies.map((body) => this.pose(body.poses, time));
    const followed = this.bodies.findIndex((body) => body.name === this.follow);
    if (followed >= 0 && here[followed]) this.target = here[followed].place;
    this.aim(width, height);
    this.drawFloor();
    this.bodies.forEach((body, k) => this.drawBelow(body, here[k], time));
    const solids = [
      ...this.scene.obstacles.map((obstacle) => this.obstacle(obstacle)),
      ...this.bodies.flatMap((body, k) => this.solids(body, here[k], this.pose(body.model, time))),
    ];
    solids.sort((one, other) => this.project(other.centre)[2] - this.project(one.centre)[2]);
    for (const solid of solids) solid.draw();
    this.drawNames(here, time, width);
    this.canvas.dataset.time = time.toFixed(3);
  }

  drawFloor() {
    const {low_world: [x0, y0, z], high_world: [x1, y1, top], walls} = this.scene;
    const corners = [[x0, y0, z], [x1, y0, z], [x1, y1, z], [x0, y1, z]];
    this.fill(corners, '#fbfcfd');
    const span = Math.max(x1 - x0, y1 - y0);
    const step = [0.1, 0.25, 0.5, 1, 2, 5, 10].find((one) => span / one <= 16) || 20;
    this.gridStep = step;
    for (let x = Math.ceil(x0 / step) * step; x <= x1; x += step) this.stroke([[x, y0, z], [x, y1, z]], LINE);
    for (let y = Math.ceil(y0 / step) * step; y <= y1; y += step) this.stroke([[x0, y, z], [x1, y, z]], LINE);
    this.stroke(corners, walls ? '#7c8794' : LINE, walls ? 2.5 : 1, {closed: true});
    if (this.scene.flies && walls) {
      const upper = corners.map(([x, y]) => [x, y, top]);
      this.stroke(upper, LINE, 1, {closed: true});
      corners.forEach((corner, k) => this.stroke([corner, upper[k]], LINE));
    }
  }

  // Draws goal, trail, shadow and bound of the pose error of a robot.
  drawBelow(body, at, time) {
    const radius = body.size_m[0], floor = this.scene.low_world[2];
    if (body.kind === 'box') return;
    if (body.goal_world) {
      const ring = this.ring(body.goal_world, 0.7 * radius);
      this.fill(ring, body.colour, 0.18);
      this.stroke(ring, body.colour, 1.5, {closed: true, dash: [3, 3]});
    }
    const last = Math.floor((time - clock.begin_s) / clock.step_s);
    const first = Math.max(0, last - Math.round(TRAIL_S / clock.step_s)), stride = Math.max(1, (last - first) >> 7);
    const trail = [];
    for (let k = first; k <= last; k += stride) {
      trail.push(Number.isFinite(body.poses[0][k]) ? body.poses.slice(0, 3).map((column) => column[k]) : null);
    }
    if (at) trail.push(at.place);
    this.stroke(trail, body.colour, 2, {alpha: 0.55});
    if (!at) return;
    if (body.kind === 'drone') {
      const [x, y] = at.place;
      this.fill(this.ring([x, y, floor], 0.8 * radius), '#1d2733', 0.13);
      this.stroke([[x, y, floor], at.place], body.colour, 1, {dash: [2, 3], alpha: 0.7});
    }
    if (body.error_m > 0) this.fill(this.ring(at.place, radius + body.error_m), body.colour, 0.22);
  }

  // Returns the parts of a body that hide each other.
  solids(body, at, model) {
    const found = [];
    if (model) found.push({centre: model.place, draw: () => this.drawModel(body, model)});
    if (!at) return found;
    const draw = {ground: this.drawGround, drone: this.drawDrone, box: this.drawBox}[body.kind];
    found.push({centre: at.place, draw: () => { draw.call(this, body, at); this.drawDot(body, at); }});
    return found;
  }

  // Draws a dot where a body would be too small to be seen.
  drawDot(body, {place}) {
    const [x, y, depth] = this.project(place);
    if (1.37 * this.canvas.clientHeight * body.size_m[0] / depth > LEAST_PX) return;
    this.pen.beginPath();
    this.pen.arc(x, y, LEAST_PX, 0, 2 * Math.PI);
    this.pen.fillStyle = body.colour;
    this.pen.fill();
  }

  drawModel(body, {place, turn}) {
    const centre = body.kind === 'ground' ? add(place, [0, 0, body.size_m[1]]) : place;
    this.stroke(this.ring(centre, body.size_m[0], turn), shaded(body.colour, 0.7), 1.6, {closed: true, dash: [4, 3]});
    this.stroke([centre, add(centre, turned(turn, [body.size_m[0], 0, 0]))], shaded(body.colour, 0.7), 1.6);
  }

  drawGround(body, {place, turn}) {
    const [radius, height] = body.size_m;
    const base = this.ring(place, radius), upper = this.ring(add(place, [0, 0, height]), radius);
    const side = shaded(body.colour, 0.62);
    base.forEach((point, k) => {
      const next = (k + 1) % SIDES;
      this.fill([point, base[next], upper[next], upper[k]], side);
      this.stroke([point, upper[k]], side, 1);
    });
    this.fill(upper, body.colour);
    this.stroke(upper, shaded(body.colour, 0.62), 1, {closed: true});
    const at = (x, y) => add(add(place, [0, 0, height]), turned(turn, [radius * x, radius * y, 0]));
    this.fill([at(0.8, 0), at(0.05, 0.5), at(0.05, 0.16), at(-0.6, 0.16), at(-0.6, -0.16), at(0.05, -0.16),
      at(0.05, -0.5)], '#fff');
  }

  drawDrone(body, {place, turn}) {
    const radius = body.size_m[0], rotor = 0.42 * radius, reach = (radius - rotor) * Math.SQRT1_2;
    const at = (x, y, z = 0) => add(place, turned(turn, [x, y, z]));
    const corners = [[reach, reach], [reach, -reach], [-reach, -reach], [-reach, reach]];
    this.stroke([at(...corners[0]), at(...corners[2])], shaded(body.colour, 0.5), 3);
    this.stroke([at(...corners[1]), at(...corners[3])], shaded(body.colour, 0.5), 3);
    for (const [x, y] of corners) {
      const ring = this.ring(at(x, y, 0.1 * radius), rotor, turn);
      this.fill(ring, x > 0 ? '#ffffff' : body.colour, 0.85);
      this.stroke(ring, body.colour, 1.6, {closed: true});
    }
    this.fill(this.ring(at(0, 0, 0.15 * radius), 0.26 * radius, turn), body.colour);
  }

  drawBox(body, {place, turn}) {
    const [length, width, height] = body.size_m;
    this.block(place, [length / 2, width / 2], [0, height], turn, body.colour);
  }

  // Draws an upright box between two heights over its place.
  block(place, [x, y], [low, high], turn, colour) {
    const flat = [[x, y], [-x, y], [-x, -y], [x, -y]];
    const [base, upper] = [low, high].map((z) => flat.map(([a, b]) => add(place, turned(turn, [a, b, z]))));
    const sides = base.map((point, k) => [point, base[(k + 1) % 4], upper[(k + 1) % 4], upper[k]]);
    sides.sort((one, other) => this.project(other[0])[2] - this.project(one[0])[2]);
    sides.forEach((side, k) => this.fill(side, shaded(colour, 0.6 + 0.06 * k)));
    this.fill(upper, colour);
  }

  obstacle(obstacle) {
    const floor = this.scene.low_world[2], colour = '#737b8c';
    const three = (point) => [...point, floor].slice(0, 3);
    if (obstacle.kind === 'box') {
      const centre = three(obstacle.centre_world), half = obstacle.half_size_m;
      const span = half.length > 2 ? [-half[2], half[2]] : [0, 0.15];
      const turn = [0, 0, Math.sin(obstacle.yaw / 2), Math.cos(obstacle.yaw / 2)];
      return {centre, draw: () => this.block(centre, half, span, turn, colour)};
    }
    const [from, to] = obstacle.kind === 'ball' ? [obstacle.centre_world, obstacle.centre_world]
      : [obstacle.start_world, obstacle.end_world];
    const places = [0, 0.25, 0.5, 0.75, 1].map((share) => three(add(from, add(to, from, -1), share)));
    const isFlat = from.length < 3;
    return {centre: places[2], draw: () => {
      for (const place of places) {
        const [x, y, depth] = this.project(add(place, [0, 0, isFlat ? 0.1 : 0]));
        if (isFlat) {
          this.fill(this.ring(place, obstacle.radius_m), shaded(colour, 0.7));
          this.fill(this.ring(add(place, [0, 0, 0.1]), obstacle.radius_m), colour);
          continue;
        }
        this.pen.beginPath();
        this.pen.arc(x, y, 1.37 * this.canvas.clientHeight * obstacle.radius_m / depth, 0, 2 * Math.PI);
        this.pen.fillStyle = colour;
        this.pen.fill();
      }
    }};
  }

  // Writes the names beside the robots, none over another, with a ring around those in an incident.
  drawNames(here, time, width) {
    const {pen} = this, taken = [];
    const now = data.events.filter((event) => event.begin_s - 0.1 <= time && time <= event.end_s + 0.3);
    pen.font = '600 13px system-ui, sans-serif';
    pen.textBaseline = 'bottom';
    this.bodies.forEach((body, k) => {
      if (!here[k] || body.kind === 'box') return;
      const worst = now.filter((event) => event.robots.includes(body.name)).sort((a, b) => a.weight - b.weight)[0];
      if (worst) {
        this.stroke(this.ring(here[k].place, 1.45 * body.size_m[0]), TONES[worst.severity], 3, {closed: true});
      }
      const text = worst ? `${body.name} ${SIGNS[worst.severity]}` : body.name;
      const [px, py] = this.project(add(here[k].place, [0, 0, 1.4 * body.size_m[1]]));
      const [qx] = this.project(add(here[k].place, [Math.sin(-this.azimuth), Math.cos(this.azimuth), 0], body.size_m[0]));
      const size = pen.measureText(text).width;
      let x = Math.min(width - size - 4, Math.max(px, qx) + 5), y = py - 2;
      while (taken.some((box) => Math.abs(box.y - y) < 15 && x < box.x + box.size && box.x < x + size)) y += 15;
      taken.push({x, y, size});
      Object.assign(pen, {lineWidth: 4, strokeStyle: '#fff', lineJoin: 'round'});
      pen.strokeText(text, x, y);
      pen.fillStyle = worst ? TONES[worst.severity] : shaded(body.colour, 0.8);
      pen.fillText(text, x, y);
    });
  }
}
