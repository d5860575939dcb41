// How this browser's user wants to see and use the page: kept in the browser, not in the account.
import { setDisplay, type Display } from "../logic/format";
import { Stored } from "./storage";

export interface Preferences extends Display {
  /** Whether letters alone act, without Ctrl or Alt. */
  singleKeys: boolean;
}

const key = "coldaisle.preferences";
const stored = new Stored("localStorage", key);
const listeners = new Set<() => void>();
let current = restore();
setDisplay(current);

function restore(): Preferences {
  const usual: Preferences = { unit: "°C", zone: "", singleKeys: true };
  try {
    const found = { ...usual, ...(JSON.parse(stored.get() ?? "{}") as Partial<Preferences>) };
    Intl.DateTimeFormat(undefined, { timeZone: found.zone || undefined });
    return found;
  } catch {
    // What another version, or another browser's list of zones, has left.
    return usual;
  }
}

function adopt(next: Preferences): void {
  current = next;
  setDisplay(current);
  for (const listener of listeners) listener();
}

// Chosen in another tab.
addEventListener("storage", (event) => {
  if (event.key === key) adopt(restore());
});

export const preferences = {
  get: () => current,
  set(change: Partial<Preferences>): void {
    const next = { ...current, ...change };
    stored.set(JSON.stringify(next));
    adopt(next);
  },
  subscribe(listener: () => void): () => void {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};
