// The newest values of a sensor.
import { dewPoint } from "../logic/climate";
import { decimal, inUnit, unitName } from "../logic/format";
import { beyond, limitsOf, type LiveSensor, type Overview } from "../logic/overview";

const degrees = (value: number | null) => decimal(value === null ? null : inUnit(value, "°C"));

export function SensorFigures({ sensor, overview, large }: {
  sensor: LiveSensor; overview: Overview; large?: boolean;
}) {
  const { temperature, humidity } = sensor;
  const limits = limitsOf(overview, sensor);
  const old = !sensor.reports;
  const over = (quantity: "temperature" | "humidity" | "dew_point", value: number | null) =>
    (!old && beyond(limits, quantity, value) ? "over" : "");
  const dew = temperature === null || humidity === null ? null : dewPoint(temperature, humidity);
  const shown = [
    { name: "temperature", label: "Temperature", value: temperature, text: degrees(temperature), unit: unitName("°C") },
    { name: "humidity", label: "Humidity", value: humidity, text: decimal(humidity), unit: "%" },
    { name: "dew_point", label: "Dew point", value: dew, text: degrees(dew), unit: unitName("°C") },
  ] as const;
  return (
    <dl class={`figures ${large ? "large" : ""} ${old ? "old" : ""}`}>
      {shown.filter(({ value }) => value !== null).map(({ name, label, value, text, unit }) => (
        <div key={name} class={over(name, value)}><dt>{label}</dt><dd>{text}<small> {unit}</small></dd></div>
      ))}
    </dl>
  );
}
