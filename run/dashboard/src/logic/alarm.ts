// Which incidents a person is told by sound and notification.
import { plural } from "./format";
import { groups } from "./incidents";
import type { OpenIncident, Overview } from "./overview";

/** What nobody has: nothing that is reported late, or in maintenance. */
export function alarming({ incidents }: Pick<Overview, "incidents">): OpenIncident[] {
  return incidents.filter(({ late, acknowledged, silenced }) => !late && !acknowledged && !silenced);
}

/**
 * Tells each incident once until somebody acknowledges it, though it may clear and come
 * back. Those that last when a page begins are seen on it and make no sound.
 */
export class Told {
  private ids: Set<string> | undefined;

  /** Those to be told now, the worst first. */
  next(overview: Pick<Overview, "incidents">): OpenIncident[] {
    const now = alarming(overview);
    const told = this.ids;
    this.ids = new Set([...(told ?? []), ...now.map(({ id }) => id)]);
    for (const { id, acknowledged } of overview.incidents) if (acknowledged) this.ids.delete(id);
    if (!told) return [];
    return now.filter(({ id }) => !told.has(id)).sort((a, b) => Number(b.severity === "critical") - Number(a.severity === "critical"));
  }
}

/** The text of a notification. */
export function announcement(incidents: readonly OpenIncident[], rooms: readonly { id: number; name: string }[]): { title: string; body: string } {
  const [worst] = incidents;
  if (!worst) return { title: "", body: "" };
  const room = rooms.find(({ id }) => id === worst.room_id)?.name;
  const place = [room, worst.sensor_name ?? worst.sensor_id].filter(Boolean).join(", ");
  return { title: groups(incidents) === 1 ? place : `${plural(groups(incidents), "incident")}, worst: ${place}`, body: worst.reason };
}
