// Excursions in words, as the first view needs them.
import type { components } from "../api/schema";
import { inWords, none, withUnit } from "./format";
import { quantities, type Quantity } from "./rules";

export type Excursion = components["schemas"]["Excursion"];

/** What an excursion and the worst one of an incident have in common. */
type Told = Pick<Excursion, "kind" | "quantity" | "direction" | "limit" | "reason">;

/** What is wrong, without what its own columns say: "Temperature above 27.0 °C". */
export function wrong({ kind, quantity, direction, limit, reason }: Told): string {
  const named = quantity && quantities[quantity as Quantity];
  if (!named || kind !== "threshold") return inWords(reason);
  return `${named.name} ${direction} ${withUnit(limit, named.unit)}`;
}

/** What the service says is wrong. */
export const reasonOf = ({ reason, limit, peak }: Pick<Excursion, "reason" | "limit" | "peak">) =>
  inWords(reason, [limit, peak]);

/** A value of an excursion, or of an incident's worst one, with its unit. */
export function valueOf({ quantity }: Pick<Excursion, "quantity">, value: number | null): string {
  const unit = quantity && quantities[quantity as Quantity]?.unit;
  return unit ? withUnit(value, unit) : none;
}

/** The same where nothing else says what is measured: "33.8 °C", but "dew point 14.3 °C". */
export function measuredOf(of: Pick<Excursion, "quantity">, value: number | null): string {
  const name = of.quantity !== "temperature" && quantities[of.quantity as Quantity]?.name.toLowerCase();
  return name ? `${name} ${valueOf(of, value)}` : valueOf(of, value);
}

/** Why one is over whose values were not back, by its resolution. */
export const endings: Record<string, string> = {
  rule_changed: "its rule was changed or switched off", rule_deleted: "its rule was deleted",
  sensor_moved: "the sensor was moved", sensor_deleted: "the sensor was deleted", not_measured: "no longer measured",
};
