// What a person can do with an incident, and the request that does it.
import type { Incident } from "../logic/incidents";
import { api, unwrap } from "./client";

export type ActionName = "take" | "hand_over" | "snooze" | "give_back" | "comment";

export const actions: Record<ActionName, { name: string; says: string }> = {
  take: { name: "I have it", says: "" },
  snooze: { name: "Snooze", says: "You have it. It calls again at this time, unless it is over by then." },
  hand_over: { name: "Hand over", says: "Somebody else has it from now on." },
  give_back: { name: "Give back", says: "Nobody has it any more, and it calls again." },
  comment: { name: "Comment", says: "For whoever looks next." },
};

export const act = (incident: Incident, body: { action: ActionName; comment?: string; to?: string; until?: string }) =>
  unwrap(api.POST("/api/v1/incidents/{incident_id}/actions", { params: { path: { incident_id: incident.id } }, body }));
