import { expect, test, vi } from "vitest";
import {
  ago, decimal, duration, fromUnit, inWords, localTime, plural, setDisplay, timeIn, utcTime, withUnit,
} from "../src/logic/format";
import { passwordError, sensorIDError, usernameError } from "../src/logic/validation";

test.each([
  [23.44, "23.4"], [-0.04, "0.0"], [null, "–"], [-12.36, "-12.4"], [1234.5, "1,234.5"],
])("%s reads %s", (value, expected) => expect(decimal(value)).toBe(expected));

test.each([
  [0, "0 s"], [59_400, "59 s"], [60_000, "1 min"], [90_000, "1 min 30 s"], [3_600_000, "1 h"],
  [5_400_000, "1 h 30 min"], [90_000_000, "1 d 1 h"],
])("%s ms last %s", (value, expected) => expect(duration(value)).toBe(expected));

test("ages are coarse and never negative", () => {
  expect(ago(1000, 0)).toBe("0 s ago");
  expect(ago(0, 61_000)).toBe("1 min ago");
  expect(ago(0, 7_300_000)).toBe("2 h ago");
});

test("counts and UTC", () => {
  expect(plural(1, "alert")).toBe("1 alert");
  expect(plural(2000, "alert")).toBe("2,000 alerts");
  expect(utcTime(0)).toBe("1970-01-01 00:00:00 UTC");
});

test("the service's rules are told beforehand", () => {
  expect(usernameError("short")).not.toBeNull();
  expect(usernameError("longenough")).toBeNull();
  expect(passwordError("Aa345678")).toBeNull();
  for (const weak of ["Aa34567", "aa345678", "AA345678", "Aaaaaaaa", `Aa1${"ä".repeat(35)}`]) {
    expect(passwordError(weak)).not.toBeNull();
  }
  expect(sensorIDError("esp32:7f-3a_1.b")).toBeNull();
  for (const bad of ["", "a b", "x".repeat(51), "ä"]) expect(sensorIDError(bad)).not.toBeNull();
});

test("temperatures are shown in the unit that the user wants, differences and rates without the zero", () => {
  expect(withUnit(27)).toBe("27.0 °C");
  expect(withUnit(null)).toBe("–");
  setDisplay({ unit: "°F", zone: "" });
  expect(withUnit(27)).toBe("80.6 °F");
  expect(withUnit(0.5, "°C", true)).toBe("0.9 °F");
  expect(withUnit(20, "°C/h")).toBe("36.0 °F/h");
  expect(withUnit(43, "%")).toBe("43.0 %");
  expect(fromUnit(80.6, "°C")).toBe(27);
  expect(fromUnit(0.9, "°C", true)).toBe(0.5);
  expect(inWords("Temperature above 50.0 °C for 12 min, peak 55.1 °C, rises 4 °C/min, was -5.0 °C, 60 %"))
    .toBe("Temperature above 122.0 °F for 12 min, peak 131.2 °F, rises 7.2 °F/min, was 23.0 °F, 60 %");
  expect(inWords("dew point 2.0 °C above what its neighbours say, temperature fell 1.5 °C in an hour, it usually "
    + "stays within 9.0 °C, the room is 2.5 °C hotter, passes 32 °C in 9 to 14 min"))
    .toBe("dew point 3.6 °F above what its neighbours say, temperature fell 2.7 °F in an hour, it usually "
      + "stays within 16.2 °F, the room is 4.5 °F hotter, passes 89.6 °F in 9 to 14 min");
  expect(inWords("High temperature detected: 55.2°C (limit 50.0°C)"))
    .toBe("High temperature detected: 131.4 °F (limit 122.0 °F)");
  expect(inWords("Temperature below 15.0 °C, lowest 10.0 °C", [15, 9.96])).toBe(
    `Temperature below 59.0 °F, lowest ${withUnit(9.96)}`);
  expect(inWords("Temperature below 10.00 °C, lowest 9.99 °C", [10, 9.99]))
    .toBe("Temperature below 50.00 °F, lowest 49.98 °F");
  setDisplay({ unit: "°C", zone: "" });
  expect(inWords("peak 55.1 °C")).toBe("peak 55.1 °C");
});

test("times are those of the zone that the user wants", () => {
  const time = Date.UTC(2026, 6, 1, 12, 30);
  const clock = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } as const;
  setDisplay({ unit: "°C", zone: "Asia/Tokyo" });
  expect(timeIn(time, clock)).toBe("21:30");
  setDisplay({ unit: "°C", zone: "America/New_York" });
  expect(timeIn(time, clock)).toBe("08:30");
  vi.useFakeTimers({ now: time });
  expect(localTime(Date.UTC(2027, 0, 1, 4, 59))).not.toContain("202");
  expect(localTime(Date.UTC(2027, 0, 1, 5))).toContain("2027");
  vi.useRealTimers();
  setDisplay({ unit: "°C", zone: "" });
});

test("the hour that comes twice when clocks are set back says which it is", () => {
  setDisplay({ unit: "°C", zone: "Europe/Berlin" });
  const shown = (minutes: number) => localTime(Date.UTC(2026, 9, 25, 0, minutes));
  expect(shown(15)).not.toBe(shown(75));
  for (const once of [-15, 135]) expect(shown(once)).not.toMatch(/GMT|CES?T/);
  setDisplay({ unit: "°C", zone: "Australia/Lord_Howe" }); // where half an hour does
  expect(localTime(Date.UTC(2026, 3, 4, 14, 45))).not.toBe(localTime(Date.UTC(2026, 3, 4, 15, 15)));
  setDisplay({ unit: "°C", zone: "" });
});
