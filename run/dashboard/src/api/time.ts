// The service's clock, by which each age, range and end is shown: this computer's may be wrong.

/** The service's clock less this computer's, in milliseconds. */
let ahead = 0;
const listeners = new Set<() => void>();

/** The time now, or of a moment by this computer's clock. */
export const serviceTime = (local = Date.now()) => local + ahead;

export function onServiceTime(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Sets the clock to what an answer says, if that differs from it by more than
 * the answer may be wrong: milliseconds. */
export function setServiceTime(measured: number, tolerance: number): void {
  if (!(Math.abs(measured - ahead) > tolerance)) return;
  ahead = measured;
  for (const listener of listeners) listener();
}

/** Reads the clock from the Date header of an answer, which has whole seconds, to a
 * question asked at a time of this computer. */
export function readServiceTime(response: Response, asked: number): void {
  const date = Date.parse(response.headers.get("Date") ?? "");
  setServiceTime(date + 500 - (asked + Date.now()) / 2, 1000 + (Date.now() - asked) / 2);
}
