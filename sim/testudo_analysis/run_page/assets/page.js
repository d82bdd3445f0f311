// Joins the parts of the page: transport, scene, plots and moments follow one cursor.
function start() {
  drawCharts();
  for (const button of document.querySelectorAll('button.copy')) {
    button.addEventListener('click', () => {
      navigator.clipboard?.writeText(button.previousElementSibling.textContent);
      button.textContent = 'copied';
    });
  }
  if (!data.scene || !clock) return;
  const by = (id) => document.getElementById(id);
  const end = clock.begin_s + clock.step_s * (clock.count - 1);
  const cursor = new Cursor(clock.begin_s, end);
  const scene = new Scene(by('scene'), data.scene);
  const plots = new Plots(by('plots'), cursor);
  const moments = new Moments(by('moments'), cursor);
  cursor.moved.push((time) => scene.draw(time));
  window.addEventListener('resize', () => scene.draw());
  transport(cursor, by);
  cameras(scene, by);
  keys(cursor, moments);
  for (const link of document.querySelectorAll('[data-at]')) {
    link.addEventListener('click', () => {
      cursor.set(Number(link.dataset.at));
      by('timeline').scrollIntoView({block: 'start'});
    });
  }
  const linked = () => /^#t=(-?[\d.]+)$/.exec(location.hash);
  window.addEventListener('hashchange', () => { if (linked()) cursor.set(Number(linked()[1])); });
  plots.draw();
  scene.look('oblique');
  const worst = data.findings.find((finding) => finding.at_s !== null && finding.severity !== 'note');
  cursor.set(linked() ? Number(linked()[1]) : worst ? worst.at_s : cursor.begin);
  globalThis.testudo = {cursor, scene, plots, moments};
}

function transport(cursor, by) {
  const slider = by('time'), play = by('play'), speed = by('speed');
  Object.assign(slider, {min: cursor.begin, max: cursor.end, step: clock.step_s});
  slider.addEventListener('input', () => cursor.set(Number(slider.value)));
  play.addEventListener('click', () => cursor.play(!cursor.playing));
  speed.addEventListener('change', () => { cursor.speed = Number(speed.value); });
  cursor.speed = Number(speed.value);
  cursor.moved.push((time) => {
    slider.value = time;
    slider.setAttribute('aria-valuetext', seconds(time));
    by('now').textContent = `${seconds(time)} of ${seconds(cursor.end)}`;
    play.textContent = cursor.playing ? 'Pause' : 'Play';
  });
  const span = () => cursor.window[1] - cursor.window[0];
  by('closer').addEventListener('click', () => cursor.zoom(span() / 3));
  by('farther').addEventListener('click', () => cursor.zoom(span() * 3));
  by('whole').addEventListener('click', () => cursor.zoom(Infinity));
}

function cameras(scene, by) {
  const follow = by('follow');
  for (const body of scene.bodies) if (body.kind !== 'box') element('option', follow, {text: body.name});
  follow.addEventListener('change', () => {
    scene.follow = follow.value;
    if (follow.value) scene.distance = Math.min(scene.distance, 16 * scene.bodies[0].size_m[0]);
    else scene.look(scene.view);
    scene.draw();
  });
  for (const button of document.querySelectorAll('[data-view]')) {
    button.addEventListener('click', () => { scene.look(button.dataset.view); scene.draw(); });
  }
  by('nearer').addEventListener('click', () => scene.zoom(0.8));
  by('away').addEventListener('click', () => scene.zoom(1.25));
}

function keys(cursor, moments) {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const isSlider = event.target.tagName === 'INPUT', isButton = /^(BUTTON|SUMMARY)$/.test(event.target.tagName);
    const step = event.shiftKey ? 1 : Math.max(0.1, clock.step_s);
    const acts = {
      ArrowLeft: () => cursor.set(cursor.time - step),
      ArrowRight: () => cursor.set(cursor.time + step),
      Home: () => cursor.set(cursor.begin),
      End: () => cursor.set(cursor.end),
      n: () => moments.step(1),
      p: () => moments.step(-1),
      ' ': isButton ? null : () => cursor.play(!cursor.playing),
    };
    const act = acts[event.key];
    if (!act || (isSlider && event.key.length > 1 && !event.shiftKey && !event.key.startsWith('Arrow'))) return;
    act();
    event.preventDefault();
  });
}

start();
