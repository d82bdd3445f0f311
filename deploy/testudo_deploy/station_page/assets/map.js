// The map: arena, obstacles, reserved space, goals and robots, seen from above; lengths in metres.

const TONES = {
  good: { edge: "#00734f", fill: "#009e73", sign: "" },
  rest: { edge: "#005a94", fill: "#0072b2", sign: "❚❚" },
  doubt: { edge: "#7a4d00", fill: "#e69f00", sign: "!" },
  bad: { edge: "#8a2906", fill: "#d55e00", sign: "✖" },
  silent: { edge: "#57606a", fill: "#ffffff", sign: "?" },
};
const INK = "#16202b", SOFT = "#4d5966", GRID = "#e8ebee", WALL = "#3b4651", OBSTACLE = "#8b95a0";
const LEAST_ROBOT_PX = 13, BORDER_PX = 46, NEAR_PX = 30;
const WORDS_PX = 34;  // height of the line below the map

export class MapView {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.bounds = null;
  }

  // Draw a picture; `chosen` is the name of a robot or "", `asked` goals that wait for an answer.
  draw(fleet, picture, chosen, asked) {
    const { canvas, pen } = this, ratio = devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    if (!fleet) return;
    this.fit(fleet, picture, width, height);
    this.em = Math.max(13, parseFloat(getComputedStyle(document.documentElement).fontSize));
    this.ground(fleet, width, height);
    const robots = picture ? picture.robots : [];
    for (const robot of robots) this.space(robot);
    for (const robot of robots) if (robot.goal) this.goal(robot.goal, robot);
    for (const goal of picture ? picture.goals : []) this.goal(goal, null);
    for (const goal of asked) this.asked(goal);
    for (const robot of robots) if (robot.place) this.robot(robot, fleet.robots[robot.name].radius, robot.name === chosen);
  }

  // Choose scale and middle, so that the arena fills the canvas, or all robots and goals where there is none.
  fit(fleet, picture, width, height) {
    let [x0, y0, x1, y1] = fleet.arena || [Infinity, Infinity, -Infinity, -Infinity];
    if (!fleet.arena) {
      const places = (picture ? picture.robots : []).flatMap((robot) => [robot.place, robot.goal && robot.goal.place]);
      for (const place of [...places.filter(Boolean), ...(this.bounds ? [this.bounds.slice(0, 2), this.bounds.slice(2)] : [])]) {
        x0 = Math.min(x0, place[0]); x1 = Math.max(x1, place[0]);
        y0 = Math.min(y0, place[1]); y1 = Math.max(y1, place[1]);
      }
      if (x0 > x1) [x0, y0, x1, y1] = [-1, -1, 1, 1];
      this.bounds = [x0, y0, x1, y1];
    }
    const wide = Math.max(x1 - x0, 1), high = Math.max(y1 - y0, 1);
    this.scale = Math.max(Math.min((width - 2 * BORDER_PX) / wide, (height - 2 * BORDER_PX - WORDS_PX) / high), 1);
    this.middle = [(x0 + x1) / 2, (y0 + y1) / 2];
    this.size = [width, height - WORDS_PX];
  }

  px([x, y]) {
    return [this.size[0] / 2 + (x - this.middle[0]) * this.scale, this.size[1] / 2 - (y - this.middle[1]) * this.scale];
  }

  world(x, y) {
    return [(x - this.size[0] / 2) / this.scale + this.middle[0], (this.size[1] / 2 - y) / this.scale + this.middle[1]];
  }

  // Return the name of the robot at a place of the canvas [px]; "" if none is near.
  robotAt(fleet, picture, x, y) {
    let best = "", least = Infinity;
    for (const robot of picture ? picture.robots : []) {
      if (!robot.place) continue;
      const [px, py] = this.px(robot.place), away = Math.hypot(px - x, py - y);
      const reach = Math.max(fleet.robots[robot.name].radius * this.scale, NEAR_PX);
      if (away <= reach && away < least) [best, least] = [robot.name, away];
    }
    return best;
  }

  ground(fleet, width, height) {
    const { pen } = this, step = this.scale > 90 ? 0.5 : this.scale > 25 ? 1 : 5;
    const [left, top] = this.world(0, 0), [right, bottom] = this.world(width, height);
    pen.strokeStyle = GRID;
    pen.lineWidth = 1;
    pen.beginPath();
    for (let x = Math.ceil(left / step) * step; x <= right; x += step) this.segment([x, top], [x, bottom]);
    for (let y = Math.ceil(bottom / step) * step; y <= top; y += step) this.segment([left, y], [right, y]);
    pen.stroke();
    this.step = step;
    if (fleet.arena) {
      const [x0, y0, x1, y1] = fleet.arena, [px, py] = this.px([x0, y1]);
      pen.strokeStyle = WALL;
      pen.lineWidth = 5;
      pen.strokeRect(px - 2.5, py - 2.5, (x1 - x0) * this.scale + 5, (y1 - y0) * this.scale + 5);
    }
    for (const corners of fleet.obstacles) this.area(corners, OBSTACLE, WALL, 1);
  }

  segment(from, to) {
    this.pen.moveTo(...this.px(from));
    this.pen.lineTo(...this.px(to));
  }

  area(corners, fill, edge, opacity, dash = []) {
    const { pen } = this;
    pen.beginPath();
    for (const corner of corners) pen.lineTo(...this.px(corner));
    pen.closePath();
    if (fill) { pen.globalAlpha = opacity; pen.fillStyle = fill; pen.fill(); pen.globalAlpha = 1; }
    if (edge) { pen.setLineDash(dash); pen.strokeStyle = edge; pen.lineWidth = 2; pen.stroke(); pen.setLineDash([]); }
  }

  space(robot) {
    const tone = TONES[robot.tone];
    if (robot.reserved) this.area(robot.reserved, tone.edge, tone.edge, 0.13, robot.tone === "silent" ? [3, 6] : []);
    if (robot.requested) this.area(robot.requested, null, tone.edge, 0, [8, 7]);
  }

  goal(goal, robot) {
    const { pen } = this, [x, y] = this.px(goal.place);
    const reach = Math.max(goal.tolerance * this.scale, 9);
    pen.strokeStyle = INK;
    pen.lineWidth = 1.5;
    if (robot && robot.place && !goal.reached) {
      pen.setLineDash([2, 6]);
      pen.beginPath();
      this.segment(robot.place, goal.place);
      pen.stroke();
      pen.setLineDash([]);
    }
    pen.lineWidth = 2.5;
    pen.beginPath();
    pen.arc(x, y, reach, 0, 2 * Math.PI);
    if (!goal.reached) {
      pen.moveTo(x - 6, y); pen.lineTo(x + 6, y); pen.moveTo(x, y - 6); pen.lineTo(x, y + 6);
    }
    pen.stroke();
    if (!goal.reached) this.text(`⚑ ${goal.name}`, x, y + reach + 0.75 * this.em, 0.95, SOFT);
  }

  asked({ place, robot }) {
    const { pen } = this, [x, y] = this.px(place);
    pen.strokeStyle = INK;
    pen.lineWidth = 2;
    pen.setLineDash([4, 4]);
    pen.beginPath();
    pen.arc(x, y, 14, 0, 2 * Math.PI);
    pen.stroke();
    pen.setLineDash([]);
    this.text(`${robot}?`, x, y + 14 + 0.75 * this.em, 1, INK);
  }

  robot(robot, radius_m, chosen) {
    const { pen } = this, [x, y] = this.px(robot.place), tone = TONES[robot.shown_fresh ? robot.tone : "silent"];
    const radius = Math.max(radius_m * this.scale, LEAST_ROBOT_PX), fresh = robot.shown_fresh;
    if (chosen) {
      pen.strokeStyle = "#e69f00";
      pen.lineWidth = 5;
      pen.beginPath();
      pen.arc(x, y, radius + 6, 0, 2 * Math.PI);
      pen.stroke();
    }
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.fillStyle = tone.fill;
    pen.fill();
    pen.strokeStyle = tone.edge;
    pen.lineWidth = 3;
    pen.setLineDash(fresh ? [] : [5, 5]);
    pen.stroke();
    pen.setLineDash([]);
    pen.save();
    pen.translate(x, y);
    pen.rotate(-robot.yaw);
    pen.fillStyle = tone.edge;
    pen.beginPath();  // an arrow head beyond the rim: the front
    pen.moveTo(radius + 0.85 * this.em, 0);
    pen.lineTo(radius - 2, -0.6 * this.em);
    pen.lineTo(radius - 2, 0.6 * this.em);
    pen.closePath();
    if (fresh) pen.fill(); else { pen.strokeStyle = tone.edge; pen.stroke(); }
    pen.restore();
    if (tone.sign) this.text(tone.sign, x, y, Math.min(1.1, radius / this.em), fresh && robot.tone !== "doubt" ? "#fff" : INK, false);
    const old = fresh ? "" : robot.place_age === null ? " ?" : ` ${robot.place_age.toFixed(0)} s ago`;
    this.text(robot.name + old, x, y - radius - 0.95 * this.em, 1.5, INK);
  }

  text(words, x, y, size_em, colour, halo = true) {
    const { pen } = this;
    pen.font = `700 ${size_em * this.em}px system-ui, "DejaVu Sans", sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    if (halo) { pen.lineWidth = 5; pen.lineJoin = "round"; pen.strokeStyle = "#ffffffe0"; pen.strokeText(words, x, y); }
    pen.fillStyle = colour;
    pen.fillText(words, x, y);
  }
}
