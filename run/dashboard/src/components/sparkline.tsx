// A small chart of a sensor's temperature in the last day, of what the overview has.
import { withUnit } from "../logic/format";
import { sparkColumns, sparkPath } from "../logic/spark";

const day = 86_400;
const width = 120;
const height = 36;

export function Sparkline({ line, start }: { line: string; start: string }) {
  const columns = sparkColumns(line, start);
  const known = columns.mean.filter((value) => value !== null);
  const label = known.length > 0
    ? `Temperature of the last 24 hours: up to ${withUnit(Math.max(...known))}`
    : "No temperatures of the last 24 hours yet";
  const from = Date.parse(start) / 1000;
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={label}>
      <path d={sparkPath(columns, from, from + day, width, height)} vector-effect="non-scaling-stroke" />
    </svg>
  );
}
