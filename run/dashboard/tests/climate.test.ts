import { expect, test } from "vitest";
import { dewPoint, humidityLimitHint, temperatureLimitHint } from "../src/logic/climate";

test.each([
  // Psychrometric tables, over water.
  [20, 50, 9.3], [25, 60, 16.7], [30, 30, 10.5], [22, 100, 22], [10, 80, 6.7],
])("dew point of %s °C at %s %% is %s °C", (temperature, humidity, expected) => {
  expect(Math.abs((dewPoint(temperature, humidity) ?? NaN) - expected)).toBeLessThan(0.1);
});

test("dry air has no dew point", () => expect(dewPoint(20, 0)).toBeNull());

test("the default limit of 50 °C is above every class", () => {
  expect(temperatureLimitHint(50)).toMatch(/every ASHRAE class/);
  expect(temperatureLimitHint(27)).toBeNull();
  expect(temperatureLimitHint(17)).toMatch(/Below/);
});

test("humidity is judged by clean air and by corrosive gases", () => {
  expect(humidityLimitHint(71)).toMatch(/70/);
  expect(humidityLimitHint(60)).toMatch(/corrosive/);
  expect(humidityLimitHint(50)).toBeNull();
});
