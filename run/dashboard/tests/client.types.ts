// What the types of a generated client must check. tsc is the test: it refuses
// a body that must compile and does not, and an @ts-expect-error above a line
// that compiles. Nothing here runs.
import createClient from "openapi-fetch";
import type { components, operations, paths } from "../src/api/schema";

type Schemas = components["schemas"];

/** The request bodies by operation. */
type Bodies = {
  [Name in keyof operations as operations[Name] extends { requestBody: object } ? Name : never]:
    operations[Name] extends { requestBody: { content: { "application/json": infer Body } } } ? Body : never;
};

// One body at least of every operation that takes one.
({
  registerCustomer: [{ email: "ops@example.com", username: "coldaisle", password: "Rack42door" }],
  loginCustomer: [{ email: "ops@example.com", password: "Rack42door" }],
  updateCustomer: [{}, { email: "ops@example.com" }, { username: "coldaisle", password: "Rack42door" }],
  createRoom: [{ name: "Hall A" }, { name: "Hall A", customer_id: 7 }],
  updateRoom: [{ name: "Hall B" }],
  createSensors: [{ room_id: 3, sensors: [{ id: "esp32-7f3a", name: "Rack 12 top", type: "ESP32-DHT22" }] }],
  createSensor: [
    { id: "esp32-7f3a", name: "Rack 12 top", type: "ESP32-DHT22", room_id: 3 },
    { id: "esp32-7f3a", name: "Rack 12 top", type: "ESP32-DHT22", room_id: 3, position: "R12/U40" },
    { room_id: 3, sensor_id: "esp32-7f3a", position: "R12/U40" },
    { room_id: 3, sensor_id: "esp32-7f3a", position: "R12/U40", name: "Rack 12 top", type: "ESP32-DHT22" },
    { room_id: 3, sensor_id: "esp32-7f3a", name: "Rack 12 top" },
  ],
  updateSensor: [
    { name: "Rack 12 top", type: "ESP32-DHT22", room_id: 3 },
    { name: "Rack 12 top", type: "ESP32-DHT22", room_id: 3, position: "R12/U40" },
  ],
  createGateway: [{ name: "Basement" }],
  invitePerson: [{ email: "ana@example.com", role: "operator" }],
  acceptInvitation: [{ code: "ABCDE" }, { code: "ABCDE", name: "Ana", password: "Rack42door" }],
  setRole: [{ role: "admin" }],
  createAPIKey: [{ name: "Prometheus", scope: "read" },
    { name: "Script", scope: "write", room_ids: [3], expires_at: "2027-03-01" }],
  enrolGateway: [
    { code: "ABCDE-FGHIJ-KLMNO-PQRST" },
    { code: "ABCDE-FGHIJ-KLMNO-PQRST", public_key: "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=", confirm: true },
  ],
  reportGatewayStatus: [{ gateway_id: "gw-4f7q2m5n3xk6d2hwz7ab", request: "e30=", signature: "AAAA" }],
  getLatestReadings: [{ node_ids: ["esp32-7f3a"] }, { sensor_ids: [] }],
  setThresholds: [{ max_temperature: 32.5 }, { max_humidity: 60 }, { max_temperature: 32.5, max_humidity: 60 }],
  actOnIncident: [
    { action: "take" }, { action: "take", comment: "A door was open" }, { action: "hand_over", to: "Night shift" },
    { action: "snooze", until: "2026-03-01T13:05:00Z" },
  ],
  seeIncidents: [{}, { ids: [41, 42] }],
  judgeExcursion: [{ verdict: "right" }, { verdict: "expected" }],
  setLearningSettings: [{ false_alarms_per_month: 0.5 }],
  createRule: [
    { quantity: "dew_point", direction: "above", limit: 15, for_s: 0, clear_margin: 0.5, clear_for_s: 120,
      severity: "warning", enabled: true },
    { quantity: "humidity", direction: "below", limit: 20, for_s: 0, clear_margin: 0, clear_for_s: 0,
      severity: "critical", enabled: false, room_id: 3 },
  ],
  updateRule: [
    { quantity: "temperature", direction: "above", limit: 27, for_s: 120, clear_margin: 0.5, clear_for_s: 120,
      severity: "warning", enabled: true },
  ],
  applyPreset: [{ preset: "ashrae_a1" }, { preset: "ashrae_recommended", room_id: 3 }],
  previewRules: [
    {
      days: 30,
      rules: [{ quantity: "temperature", direction: "above", limit: 27, for_s: 0, clear_margin: 0, clear_for_s: 0,
        severity: "warning", enabled: true }],
    },
  ],
  createMaintenance: [
    { start_time: "2026-03-01T12:00:00Z", duration_s: 3600, room_ids: [3, 4] },
    { start_time: "2026-03-01T12:00:00Z", duration_s: 3600, time_zone: "Europe/Zurich", weekdays: [1, 4],
      sensor_id: "esp32-7f3a", comment: "Filters", confirm: true },
  ],
  previewMaintenance: [{ room_ids: [3] }, { sensor_id: "esp32-7f3a" }],
  updateMaintenance: [
    { start_time: "2026-03-01T12:00:00Z", duration_s: 3600, room_ids: [3], until: "2026-06-01T12:00:00Z" },
  ],
  recordPrediction: [
    { sensor_id: "esp32-7f3a", timestamp: "2026-03-01T12:00:00Z", anomaly_predicted: true },
    { sensor_id: "esp32-7f3a", timestamp: "2026-03-01T12:00:00Z", anomaly_predicted: false,
      predicted_temp: 24.1, actual_humidity: 41.2 },
  ],
  addCorrection: [
    { sensor_id: "esp32-7f3a", from: "2030-03-01T12:00:00Z" },
    { sensor_id: "esp32-7f3a", from: "2030-03-01T12:00:00Z", temperature_offset: -0.3, humidity_offset: 1.5,
      certificate: "C-1", due_date: "2031-03-01" },
  ],
  reportWatch: [{ name: "Zurich", last_poll_age_s: 3, queue_age_s: 0 },
    { name: "Zurich", last_poll_age_s: 3, last_success_age_s: null, queue_age_s: 0 }],
  startDrill: [{ rule_id: 12, sensor_id: "esp32-7f3a" }],
  validatePrediction: [{ feedback: "ok" }, { feedback: "not_ok" }],
}) satisfies { [Name in keyof Bodies]: Bodies[Name][] };

// An empty body is one for the operations alone all of whose fields are optional.
type TakesNothing = { [Name in keyof Bodies]: object extends Bodies[Name] ? Name : never }[keyof Bodies];
"updateCustomer" satisfies TakesNothing;
({ updateCustomer: true, seeIncidents: true }) satisfies Record<TakesNothing, true>;

// Neither body of a new sensor, nor half of one.
// @ts-expect-error nothing of it
({}) satisfies Schemas["NewSensor"];
// @ts-expect-error a sensor belongs to a room
({ id: "esp32-7f3a", name: "Rack 12 top", type: "ESP32-DHT22" }) satisfies Schemas["NewSensor"];
// @ts-expect-error by id there must be a name
({ id: "esp32-7f3a", type: "ESP32-DHT22", room_id: 3 }) satisfies Schemas["NewSensor"];
// @ts-expect-error by id there must be a type
({ id: "esp32-7f3a", name: "Rack 12 top", room_id: 3 }) satisfies Schemas["NewSensor"];
// @ts-expect-error which sensor?
({ name: "Rack 12 top", type: "ESP32-DHT22", room_id: 3 }) satisfies Schemas["NewSensor"];
// @ts-expect-error by sensor_id there must be a position or a name
({ room_id: 3, sensor_id: "esp32-7f3a" }) satisfies Schemas["NewSensor"];
// @ts-expect-error an id of a sensor is text
({ id: 7, name: "Rack 12 top", type: "ESP32-DHT22", room_id: 3 }) satisfies Schemas["NewSensor"];
// @ts-expect-error an id of a room is a number
({ id: "esp32-7f3a", name: "Rack 12 top", type: "ESP32-DHT22", room_id: "3" }) satisfies Schemas["NewSensor"];
// @ts-expect-error misspelt
({ id: "esp32-7f3a", name: "R", type: "ESP32-DHT22", room_id: 3, positon: "R12/U40" }) satisfies Schemas["NewSensor"];

// The other bodies: what is missing, of the wrong type, or misspelt.
// @ts-expect-error no name
({}) satisfies Schemas["NewRoom"];
// @ts-expect-error misspelt
({ name: "Hall A", customerID: 7 }) satisfies Schemas["NewRoom"];
// @ts-expect-error misspelt: a change of nothing
({ e_mail: "ops@example.com" }) satisfies Schemas["ProfileChange"];
// @ts-expect-error no password
({ email: "ops@example.com", username: "coldaisle" }) satisfies Schemas["Registration"];
// @ts-expect-error login is by e-mail
({ username: "coldaisle", password: "Rack42door" }) satisfies Schemas["Credentials"];
// @ts-expect-error a window of nothing
({ start_time: "2026-03-01T12:00:00Z", duration_s: 3600 }) satisfies Schemas["MaintenanceChange"];
// @ts-expect-error neither limit
({}) satisfies Schemas["ThresholdsChange"];
// @ts-expect-error misspelt
({ max_temp: 32.5 }) satisfies Schemas["ThresholdsChange"];
// @ts-expect-error a limit is a number
({ max_temperature: "32.5" }) satisfies Schemas["ThresholdsChange"];
// @ts-expect-error no list
({}) satisfies Schemas["NodeList"];
// @ts-expect-error one id is no list
({ node_ids: "esp32-7f3a" }) satisfies Schemas["NodeList"];
// @ts-expect-error no such verdict
({ feedback: "perhaps" }) satisfies Schemas["Verdict"];
// @ts-expect-error was it judged an anomaly?
({ sensor_id: "esp32-7f3a", timestamp: "2026-03-01T12:00:00Z" }) satisfies Schemas["NewPrediction"];

// Calls check their bodies and parameters, and tell their answers apart.
export async function calls(): Promise<unknown[]> {
  const api = createClient<paths, "application/json">();
  const sensor = { params: { path: { sensor_id: "esp32-7f3a" } } };
  const range = { start_time: "2026-03-01T00:00:00Z", end_time: "2026-03-02T00:00:00Z" };

  // @ts-expect-error neither body of a sensor
  await api.POST("/api/v1/sensors/new_sensor", { body: {} });
  // @ts-expect-error a history has a range
  await api.GET("/api/v1/data/historical/{sensor_id}", sensor);
  // @ts-expect-error no such period
  await api.GET("/api/v1/data/stats/{sensor_id}", { params: { ...sensor.params, query: { period: "1y" } } });

  const history =
    (await api.GET("/api/v1/data/historical/{sensor_id}", { params: { ...sensor.params, query: range } })).data;
  const stats = (await api.GET("/api/v1/data/stats/{sensor_id}", sensor)).data;
  if (!history || !stats) return [];

  history satisfies Schemas["RawHistory"] | Schemas["BucketHistory"];
  // @ts-expect-error raw readings have no count
  const unknown = history.map((row) => row.count);
  const known = history.map((row) => {
    if ("count" in row) return [row.count, row.min_temperature, row.max_humidity];
    row satisfies Schemas["ReadingBody"];
    // @ts-expect-error nor has this one
    return [row.temperature, row.count];
  });

  stats satisfies Schemas["PeriodStats"] | Schemas["AllStats"];
  // @ts-expect-error one period has no windows
  const windows = stats.windows;
  if ("windows" in stats) {
    // @ts-expect-error no such window
    return [unknown, known, windows, stats.windows["24h"].count, stats.windows["1y"]];
  }
  return [stats.period, stats.count];
}
