// Which incidents a person is told by sound and notification.
import type { Overview } from "./overview";
import { plural } from "./format";
import { groups } from "./incidents";

export type OpenIncident = Overview["incidents"][number];

/** What is so now and nobody has: nothing that is over, reported late, or in maintenance. */
export function alarming({ incidents }: Pick<Overview, "incidents">): OpenIncident[] {
  return incidents.filter(({ lasting, late, acknowledged, silenced }) => lasting && !late && !acknowledged && !silenced);
}

/**
 * Tells each incident once, as long as it is open. Those that are open when a page
 * begins are seen on it and make no sound.
 */
export class Told {
  private ids: Set<string> | undefined;

  /** Those to be told now, the worst first. */
  next(overview: Pick<Overview, "incidents">): OpenIncident[] {
    const now = alarming(overview);
    const before = this.ids;
    const open = new Set(overview.incidents.map(({ id }) => id));
    this.ids = new Set([...(before ?? []), ...now.map(({ id }) => id)].filter((id) => open.has(id)));
    if (!before) return [];
    return now.filter(({ id }) => !before.has(id)).sort((a, b) => Number(b.severity === "critical") - Number(a.severity === "critical"));
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
