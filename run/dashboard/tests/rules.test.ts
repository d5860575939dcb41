import { expect, test } from "vitest";
import { clearing, condition, found, type RuleFields } from "../src/logic/rules";

const rule: RuleFields = { quantity: "temperature", direction: "above", limit: 27, for_s: 120, clear_margin: 0.5,
  clear_for_s: 120, severity: "warning", enabled: true };

test("rules are told in words", () => {
  expect(condition(rule)).toBe("Temperature above 27.0 °C for 2 min");
  expect(clearing(rule)).toBe("0.5 °C back for 2 min");
  const threshold: RuleFields = { ...rule, quantity: "humidity", limit: 50, for_s: 0, clear_margin: 0, clear_for_s: 0 };
  expect(condition(threshold)).toBe("Humidity above 50.0 %");
  expect(clearing(threshold)).toBe("back within the limit");
});

test("what a preview found is told in words", () => {
  expect(found({ incidents: 2, excursions: 14 })).toBe("2 incidents of 14 excursions");
  expect(found({ incidents: 1, excursions: 1 })).toBe("1 incident of 1 excursion");
  expect(found({ incidents: 0, excursions: 3 }))
    .toBe("0 incidents of 3 excursions"); // of one that began on a day before
  expect(found({ incidents: 0, excursions: 0 })).toBe("No incident");
});
