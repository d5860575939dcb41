// Rules, presets and previews in words.
import type { components } from "../api/schema";
import { duration, plural, withUnit } from "./format";

type Schemas = components["schemas"];
export type Rule = Schemas["Rule"];
export type RuleFields = Schemas["RuleFields"];
export type RuleChange = Schemas["RuleChange"];
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

/** When its excursion ends: "0.5 °C back for 2 min". */
export function clearing(rule: RuleFields): string {
  const margin = rule.clear_margin > 0 ? `${withUnit(rule.clear_margin, quantities[rule.quantity].unit, true)} back`
    : "back within the limit";
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

/** How much a preview found: "1 incident of 9 excursions". */
export function found({ incidents, excursions }: { incidents: number; excursions: number }): string {
  return incidents === 0 && excursions === 0 ? "No incident"
    : `${plural(incidents, "incident")} of ${plural(excursions, "excursion")}`;
}
