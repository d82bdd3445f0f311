// Plays real robots and their replayed shadows from above; all data is in the page.
(() => {
  const box = document.getElementById("topview");
  const data = JSON.parse(document.getElementById("topview-data").textContent);
  const bytes = Uint8Array.from(atob(data.poses), c => c.charCodeAt(0));
  const poses = new Int16Array(bytes.buffer), frames = data.frames, robots = data.robots;
  const svg = box.querySelector("svg"), slider = box.querySelector("input"), clock = box.querySelector("output");
  const button = box.querySelector("button"), speed = box.querySelector("select");
  const NONE = -32768, TAIL = 100, make = (name, attributes, parent) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    return parent.appendChild(node);
  };
  const value = (f, r, k) => poses[(f * robots.length + r) * data.columns + k];
  const marks = robots.map((robot, r) => {
    const trail = make("path", {class: "trail", stroke: robot.colour}, svg);
    const ghostTrail = make("path", {class: "ghost-trail", stroke: robot.colour}, svg);
    const body = (kind) => {
      const group = make("g", {class: kind}, svg);
      make("circle", {r: data.radius, fill: kind === "real" ? robot.colour : "none", stroke: robot.colour}, group);
      make("line", {x2: data.radius, stroke: kind === "real" ? "#fff" : robot.colour}, group);
      return group;
    };
    const ghost = body("ghost"), real = body("real");
    const label = make("text", {fill: robot.colour, "font-size": data.letter}, svg);
    label.textContent = robot.name;
    return {trail, ghostTrail, ghost, real, label};
  });
  const place = (node, f, r, k) => {
    const x = value(f, r, k), shown = x !== NONE;
    node.style.display = shown ? "" : "none";
    if (shown) node.setAttribute("transform",
      `translate(${x / data.scale} ${-value(f, r, k + 1) / data.scale}) rotate(${-value(f, r, k + 2) / 100})`);
    return shown;
  };
  const line = (from, to, r, k) => {
    let path = "", pen = "M";
    for (let f = from; f <= to; f++) {
      if (value(f, r, k) === NONE) { pen = "M"; continue; }
      if (k && f > from && data.restart[f]) pen = "M";
      path += pen + (value(f, r, k) / data.scale).toFixed(3) + " " + (-value(f, r, k + 1) / data.scale).toFixed(3);
      pen = "L";
    }
    return path;
  };
  const height = (f, r, k) => value(f, r, k) === NONE ? "?" : (value(f, r, k) / data.height).toFixed(2);
  const draw = (at) => {
    const f = Math.min(frames - 1, Math.max(0, Math.round(at)));
    marks.forEach((mark, r) => {
      const first = Math.max(0, f - TAIL);
      mark.trail.setAttribute("d", line(first, f, r, 0));
      mark.ghostTrail.setAttribute("d", line(first, f, r, 3));
      const shown = place(mark.real, f, r, 0);
      place(mark.ghost, f, r, 3);
      mark.label.style.display = shown ? "" : "none";
      if (data.columns > 6)
        mark.label.textContent = `${robots[r].name} ${height(f, r, 6)} (${height(f, r, 7)})`;
      const wide = 0.6 * mark.label.textContent.length + 2;
      const x = value(f, r, 0) / data.scale, left = x + 1.3 * data.radius + wide * data.letter > data.right;
      mark.label.setAttribute("text-anchor", left ? "end" : "start");
      mark.label.setAttribute("x", x + (left ? -1.3 : 1.3) * data.radius);
      mark.label.setAttribute("y", -value(f, r, 1) / data.scale - 1.1 * data.radius);
    });
    slider.value = f;
    clock.textContent = (data.begin + f * data.step).toFixed(1) + " s";
  };
  let now = data.first, last = 0, playing = false;
  const tick = (stamp) => {
    if (!playing) return;
    if (last) now += (stamp - last) / 1000 / data.step * Number(speed.value);
    last = stamp;
    if (now >= frames - 1) { now = frames - 1; playing = false; button.textContent = "Play"; }
    draw(now);
    requestAnimationFrame(tick);
  };
  button.onclick = () => {
    playing = !playing; last = 0;
    if (playing && now >= frames - 1) now = 0;
    button.textContent = playing ? "Pause" : "Play";
    if (playing) requestAnimationFrame(tick);
  };
  slider.max = frames - 1;
  slider.oninput = () => { now = Number(slider.value); draw(now); };
  draw(now);
})();
