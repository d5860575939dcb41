import { expect, test } from "vitest";
import { toldOf } from "../src/logic/audit";
import { localTime } from "../src/logic/format";

test.each([
  ["updateSensor", "sensor:n1", { name: "Rack 12 top", room_id: 1 }, { name: "Rack 12 top", room_id: 3 },
    "moved sensor Rack 12 top to Hall 3"],
  ["updateSensor", "sensor:n1", { name: "Rack", room_id: 1 }, { name: "Rack 2", room_id: 1 }, "changed sensor Rack 2"],
  ["createSensor", "sensor:n1", null, { name: "Rack", room_id: 1 }, "created sensor Rack"],
  ["setBackSensor", "sensor:a:b", {}, {}, "set back sensor a:b"],
  ["addCorrection", "sensor:n1", null, { sensor_id: "n1", from: "2030-03-01T12:00:00Z" },
    "added a correction of sensor n1 from " + localTime(Date.UTC(2030, 2, 1, 12))],
  ["withdrawCorrection", "sensor:n1", { sensor_id: "n1", from: "2030-03-01T12:00:00Z" }, null,
    "withdrew the correction of sensor n1 from " + localTime(Date.UTC(2030, 2, 1, 12))],
  ["revokeAPIKey", "key:5", { name: "Prometheus" }, null, "revoked API key Prometheus"],
  ["deleteRule", "rule:7", { limit: 30 }, null, "deleted rule 7"],
  ["setThresholds", "thresholds of customer:7", {}, {}, "set thresholds of customer 7"],
  ["setLearningSettings", "learning settings", {}, {}, "set learning settings"],
  ["invitePerson", "invitation of ana@example.com", null, {}, "made the invitation of ana@example.com"],
  ["acceptInvitation", "person:9", null, { name: "Ana", role: "admin" }, "joined as admin"],
  ["setRole", "person:9", { role: "admin" }, { name: "Ana", role: "viewer" }, "made Ana viewer, who was admin"],
  ["updateCustomer", "person:9", {}, { password_set: true }, "changed their profile and password"],
  ["somethingNew", "room:3", null, null, "somethingNew room 3"],
])("%s of %s", (operation, subject, before, after, told) => {
  expect(toldOf({ operation, subject, before, after }, (id) => `Hall ${id}`)).toBe(told);
});
