// An entry of the audit log in words: "moved sensor Rack 12 top to Hall C".
import { localTime } from "./format";

interface Entry { operation: string; subject: string; before?: unknown; after?: unknown }

type Fields = Record<string, unknown>;

const fieldsOf = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});

/** What an operation does, by how its name begins. */
const verbs: readonly (readonly [begin: string, verb: string])[] = [
  ["create", "created"], ["update", "changed"], ["delete", "deleted"], ["remove", "removed"], ["revoke", "revoked"],
  ["setBack", "set back"], ["set", "set"], ["enrol", "enrolled"], ["sign", "took as its own"],
  ["acknowledge", "acknowledged"],
  ["apply", "applied"], ["actOn", "acted on"], ["see", "saw"], ["judge", "judged"], ["validate", "judged"],
  ["record", "recorded"], ["trigger", "started"], ["invite", "made the"],
];

/** What reads badly as a verb and its subject. */
const whole: Record<string, (before: Fields, after: Fields) => string> = {
  registerCustomer: (_, after) => `registered the account ${text(after.username)}`,
  updateCustomer: (_, after) => `changed their profile${after.password_set === true ? " and password" : ""}`,
  acceptInvitation: (_, after) => `joined as ${text(after.role)}`,
  addCorrection: (_, after) =>
    `added a correction of sensor ${text(after.sensor_id)} from ${localTime(Date.parse(text(after.from)))}`,
  withdrawCorrection: (before) =>
    `withdrew the correction of sensor ${text(before.sensor_id)} from ${localTime(Date.parse(text(before.from)))}`,
  setRole: (before, after) => `made ${text(after.name)} ${text(after.role)}, who was ${text(before.role)}`,
};

const text = (value: unknown) => (typeof value === "string" ? value : "");

const kinds: Record<string, string> = { key: "API key", customer: "account", maintenance: "maintenance window" };

/** What was done, without who did it. */
export function toldOf(entry: Entry, roomName: (id: number) => string): string {
  const [before, after] = [fieldsOf(entry.before), fieldsOf(entry.after)];
  const special = whole[entry.operation];
  if (special) return special(before, after);
  const [kind = "", id] = entry.subject.split(/:(.*)/s);
  const name = text(after.name) || text(before.name) || id || "";
  const subject = `${kinds[kind] ?? kind} ${name}`.trim();
  if (kind === "sensor" && typeof after.room_id === "number" && before.room_id !== undefined
    && before.room_id !== after.room_id) {
    return `moved ${subject} to ${roomName(after.room_id)}`;
  }
  const verb = verbs.find(([begin]) => entry.operation.startsWith(begin))?.[1];
  return `${verb ?? entry.operation} ${subject}`;
}
