// Turns a camera around a point: the part of three.js's OrbitControls that brax's viewer uses.
import * as THREE from 'three';

const LOWEST = 0.02;  // rad from either pole

export class OrbitControls extends THREE.EventDispatcher {
  constructor(camera, domElement) {
    super();
    this.camera = camera;
    this.target = new THREE.Vector3();
    this.minDistance = 0.2;
    this.maxDistance = 60;
    this.fingers = new Map();
    domElement.addEventListener('pointerdown', (event) => this.press(event));
    addEventListener('pointermove', (event) => this.move(event));
    addEventListener('pointerup', (event) => this.fingers.delete(event.pointerId));
    addEventListener('pointercancel', (event) => this.fingers.delete(event.pointerId));
    domElement.addEventListener('wheel', (event) => {
      event.preventDefault();
      this.zoom(Math.exp(0.001 * event.deltaY));
    }, {passive: false});
  }

  press(event) {
    this.fingers.set(event.pointerId, [event.clientX, event.clientY]);
    this.dispatchEvent({type: 'start'});
  }

  move(event) {
    const before = this.fingers.get(event.pointerId);
    if (!before) return;
    const spread = this.spread();
    const now = [event.clientX, event.clientY];
    this.fingers.set(event.pointerId, now);
    if (this.fingers.size === 1) {
      this.turn((before[0] - now[0]) * 0.006, (before[1] - now[1]) * 0.006);
    } else if (spread > 0) {
      this.zoom(spread / Math.max(1, this.spread()));
    }
  }

  spread() {
    const [a, b] = [...this.fingers.values()];
    return b ? Math.hypot(a[0] - b[0], a[1] - b[1]) : 0;
  }

  turn(azimuth, polar) {
    const arm = this.camera.position.clone().sub(this.target);
    const length = arm.length();
    const height = Math.acos(arm.z / length) + polar;
    const angle = Math.atan2(arm.y, arm.x) + azimuth;
    const down = Math.min(Math.PI / 2 - LOWEST, Math.max(LOWEST, height));
    arm.set(Math.sin(down) * Math.cos(angle), Math.sin(down) * Math.sin(angle), Math.cos(down));
    this.camera.position.copy(this.target).addScaledVector(arm, length);
    this.dispatchEvent({type: 'change'});
  }

  zoom(factor) {
    const arm = this.camera.position.clone().sub(this.target);
    arm.setLength(Math.min(this.maxDistance, Math.max(this.minDistance, factor * arm.length())));
    this.camera.position.copy(this.target).add(arm);
    this.dispatchEvent({type: 'change'});
  }

  update() {
    this.camera.lookAt(this.target);
    return false;
  }
}
