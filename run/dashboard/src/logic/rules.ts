// Rules, presets and previews in words.
import type { components } from "../api/schema";
import { decimal, duration, plural, withUnit } from "./format";

type Schemas = components["schemas"];
export type Rule = Schemas["Rule"];
export type RuleFields = Schemas["RuleFields"];
export type RuleChange = Schemas["RuleChange"];
export type PreviewSensor = Schemas["PreviewSensor"];
export type Quantity = RuleFields["quantity"];

export const quantities: Record<Quantity, { name: string; unit: string }> = {
  temperature: { name: "Temperature", unit: "°C" },
  humidity: { name: "Humidity", unit: "%" },
  dew_point: { name: "Dew point", unit: "°C" },
  temperature_rate: { name: "Temperature change", unit: "°C/h" },
};

/** When a rule fires: "Temperature above 27.0 °C for 2 min". */
export function condition(rule: RuleFields): string {
  const { name, unit } = quantities[rule.quantity];
  const held = rule.for_s > 0 ? ` for ${duration(rule.for_s * 1000)}` : "";
  return `${name} ${rule.direction} ${withUnit(rule.limit, unit)}${held}`;
}

/** When its incident ends: "0.5 °C back for 2 min". */
export function clearing(rule: RuleFields): string {
  const margin = rule.clear_margin > 0 ? `${withUnit(rule.clear_margin, quantities[rule.quantity].unit, true)} back` : "back within";
  return rule.clear_for_s > 0 ? `${margin} for ${duration(rule.clear_for_s * 1000)}` : margin;
}

export const presetNames: Record<string, { name: string; note: string }> = {
  ashrae_recommended: { name: "Recommended", note: "Where equipment lives longest." },
  ashrae_recommended_corrosive: { name: "Recommended, corrosive air", note: "At most 50 % relative humidity." },
  ashrae_a1: { name: "Allowable A1", note: "Enterprise servers and storage, tightly controlled." },
  ashrae_a2: { name: "Allowable A2", note: "Volume servers, storage and workstations." },
  ashrae_a3: { name: "Allowable A3", note: "Volume servers built for more heat." },
  ashrae_a4: { name: "Allowable A4", note: "The widest class." },
  ashrae_rate: { name: "Rate of change", note: "20 °C/h." },
  ashrae_rate_tape: { name: "Rate of change, tape", note: "5 °C/h." },
};

/** What a preview found, in words, by day and by sensor. */
export interface Preview {
  sentence: string;
  /** Oldest first, days without any included. */
  days: { date: string; incidents: number }[];
  /** Most incidents first. */
  sensors: PreviewSensor[];
}

/** Sums up the answer to a preview of so many days that end today (UTC). */
export function summarize(found: readonly PreviewSensor[], days: number, now: number): Preview {
  const total = found.reduce((sum, sensor) => sum + sensor.incidents, 0);
  const counts = new Map<string, number>();
  for (const { date, incidents } of found.flatMap((sensor) => sensor.days)) counts.set(date, (counts.get(date) ?? 0) + incidents);
  const dates = Array.from({ length: days + 1 }, (_, i) => new Date(now - (days - i) * 86_400_000).toISOString().slice(0, 10));
  const sentence = total === 0
    ? `No incident in the last ${plural(days, "day")}.`
    : `${plural(total, "incident")} in the last ${plural(days, "day")}, at ${plural(found.length, "sensor")}: ${decimal(total / days)} a day.`;
  return {
    sentence, days: dates.map((date) => ({ date, incidents: counts.get(date) ?? 0 })),
    sensors: found.toSorted((a, b) => b.incidents - a.incidents),
  };
}
