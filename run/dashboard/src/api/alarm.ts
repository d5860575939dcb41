// Tells new incidents by a sound and a notification while a tab is open, hidden or not,
// if the user wants it. Of several tabs one does.
import { announcement, Told } from "../logic/alarm";
import type { Incident } from "../logic/incidents";
import type { Overview } from "../logic/overview";
import { Stored } from "./storage";

export interface Wishes { sound: boolean; notification: boolean }

const stored = new Stored("localStorage", "coldaisle.told");

export function wishes(): Wishes {
  try {
    return { sound: false, notification: false, ...(JSON.parse(stored.get() ?? "{}") as Partial<Wishes>) };
  } catch {
    return { sound: false, notification: false };
  }
}

export function wish(change: Partial<Wishes>): Wishes {
  const next = { ...wishes(), ...change };
  stored.set(JSON.stringify(next));
  return next;
}

let audio: AudioContext | undefined;

/** Whether the browser lets this tab make a sound: it does after somebody has pressed something in it. */
export const audible = () => audio?.state === "running";

/** Called when somebody presses something. */
export async function allowSound(): Promise<void> {
  audio ??= new AudioContext();
  await audio.resume();
}

/** Two notes, twice for what is critical. */
export function ring(critical: boolean): void {
  if (!audio || !audible()) return;
  const begin = audio.currentTime + 0.02;
  for (const [i, pitch] of (critical ? [880, 660, 880, 660] : [660, 880]).entries()) {
    const note = audio.createOscillator();
    const level = audio.createGain();
    const at = begin + i * 0.22;
    note.frequency.value = pitch;
    level.gain.setValueAtTime(0, at);
    level.gain.linearRampToValueAtTime(0.3, at + 0.02);
    level.gain.linearRampToValueAtTime(0, at + 0.2);
    note.connect(level).connect(audio.destination);
    note.start(at);
    note.stop(at + 0.2);
  }
  performance.mark("ring");
}

/** Runs in the one tab that is first to want it, and in no other for some seconds. */
function inOneTab(name: string, run: () => void): void {
  if (!("locks" in navigator)) return run();
  void navigator.locks.request(`coldaisle.told.${name}`, { ifAvailable: true }, async (lock) => {
    if (!lock) return;
    run();
    // As long as another tab may take to hear of the same.
    await new Promise((resolve) => setTimeout(resolve, 15_000));
  });
}

function tell([worst, ...others]: Incident[]): void {
  if (!worst) return;
  const { sound, notification } = wishes();
  // One that becomes critical is told anew, however short ago it was told.
  const call = `${worst.id} ${worst.severity}`;
  if (sound && audible()) inOneTab(`sound.${call}`, () => ring(worst.severity === "critical"));
  if (!notification || !("Notification" in self) || Notification.permission !== "granted") return;
  inOneTab(`notification.${call}`, () => {
    const { title, body } = announcement([worst, ...others]);
    try {
      const shown = new Notification(title, {
        body, tag: String(worst.id), icon: "/icon-open.svg", requireInteraction: worst.severity === "critical",
        // Where the one before still stands the browser would replace it without a sound.
        ...{ renotify: true },
      });
      shown.onclick = () => {
        focus();
        shown.close();
      };
    } catch {
      // Phones have notifications of service workers alone.
    }
  });
}

let told = new Told();

/** Forgets what was told, of one session and the next. */
export function forgetTold(): void {
  told = new Told();
}

export function hearOverview(overview: Overview): void {
  tell(told.next(overview));
}
