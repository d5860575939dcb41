// The dew point of room air, and the recommended range of temperature and humidity.
import { withUnit } from "./format";

/**
 * Dew point in degrees Celsius by the Magnus formula (coefficients of Sonntag
 * 1990, over water: within 0.1 K from -45 to 60 °C), or null for dry air, which
 * has none.
 */
export function dewPoint(temperature: number, humidity: number): number | null {
  if (humidity <= 0) return null;
  const a = 17.62;
  const b = 243.12;
  const gamma = Math.log(humidity / 100) + (a * temperature) / (b + temperature);
  return (b * gamma) / (a - gamma);
}

/** The recommended envelope of ASHRAE TC 9.9 (2021), at the inlet of the equipment. */
export const recommended = {
  temperature: { low: 18, high: 27 },
  dewPoint: { low: -9, high: 15 },
  humidity: { high: 70, highWithCorrosiveGases: 50 },
} as const;

/** Advice on a temperature threshold, or null. */
export function temperatureLimitHint(limit: number): string | null {
  if (limit > 45) {
    return `Above every ASHRAE class (A4 allows ${withUnit(45)}): equipment fails before this limit warns.`;
  }
  if (limit > recommended.temperature.high) {
    return `Above the recommended ${withUnit(27)}: you are warned only beyond the recommended range.`;
  }
  if (limit < recommended.temperature.low) {
    return "Below the recommended range: a healthy room would raise alerts all day.";
  }
  return null;
}

/** Advice on a humidity threshold, or null. */
export function humidityLimitHint(limit: number): string | null {
  if (limit > recommended.humidity.high) return "Above the recommended 70 %.";
  if (limit > recommended.humidity.highWithCorrosiveGases) {
    return "Fine in clean air; where corrosive gases are present 50 % is recommended.";
  }
  return null;
}
