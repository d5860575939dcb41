// Which incidents a person is told by sound and notification.
import { reasonOf } from "./excursions";
import { titleOf, type Incident } from "./incidents";
import type { Overview } from "./overview";

/** What calls: what nobody has, is not over for now, came in time, and is not in maintenance. */
export function alarming({ incidents }: Pick<Overview, "incidents">): Incident[] {
  return incidents.filter(({ state, breaking, late, silenced }) => state === "open" && breaking && !late && !silenced);
}

/**
 * Tells each incident once, and when it becomes critical, until somebody takes it: once it is open
 * again, it calls again. Those that last when a page begins are seen on it and make no sound.
 */
export class Told {
  private told: Map<number, Incident["severity"]> | undefined;

  /** Those to be told now, in the service's order. */
  next(overview: Pick<Overview, "incidents">): Incident[] {
    const now = alarming(overview);
    const before = this.told;
    const told = this.told = new Map(before);
    for (const { id, state, severity, late, silenced } of overview.incidents) {
      if (late || silenced) continue;
      if (state === "taken") told.delete(id);
      // One that has cleared is known, too: should it come back, it is the same.
      else if (state === "open" && told.get(id) !== "critical") told.set(id, severity);
    }
    return before ? now.filter(({ id }) => before.get(id) !== told.get(id)) : [];
  }
}

/** The text of a notification. */
export function announcement([worst, ...others]: readonly [Incident, ...Incident[]]): { title: string; body: string } {
  return {
    title: titleOf(worst) + (others.length > 0 ? `, and ${others.length} more` : ""), body: reasonOf(worst.worst),
  };
}
