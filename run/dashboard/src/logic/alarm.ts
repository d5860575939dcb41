// Which incidents a person is told by sound and notification.
import { inWords } from "./format";
import { titleOf, type Incident } from "./incidents";
import type { Overview } from "./overview";

/** What calls: what nobody has, is not over for now, came in time, and is not in maintenance. */
export function alarming({ incidents }: Pick<Overview, "incidents">): Incident[] {
  return incidents.filter(({ state, breaking, late, silenced }) => state === "open" && breaking && !late && !silenced);
}

/**
 * Tells each incident once until somebody takes it: once it is open again, it calls again. Those
 * that last when a page begins are seen on it and make no sound.
 */
export class Told {
  private ids: Set<number> | undefined;

  /** Those to be told now, in the service's order. */
  next(overview: Pick<Overview, "incidents">): Incident[] {
    const now = alarming(overview);
    const told = this.ids;
    const idsIn = (wanted: Incident["state"]) => overview.incidents
      .filter(({ state, late, silenced }) => state === wanted && !late && !silenced).map(({ id }) => id);
    const taken = new Set(idsIn("taken"));
    // One that has cleared is known, too: should it come back, it is the same.
    this.ids = new Set([...(told ?? []), ...idsIn("open")].filter((id) => !taken.has(id)));
    return told ? now.filter(({ id }) => !told.has(id)) : [];
  }
}

/** The text of a notification. */
export function announcement([worst, ...others]: readonly [Incident, ...Incident[]]): { title: string; body: string } {
  return {
    title: titleOf(worst) + (others.length > 0 ? `, and ${others.length} more` : ""), body: inWords(worst.worst.reason),
  };
}
