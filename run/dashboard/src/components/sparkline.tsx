// A small chart of a sensor's temperature in the last day. It is requested when it
// comes into view, four at a time, and cached: a page of 200 sensors must not send 200
// requests at once.
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "preact/hooks";
import { history } from "../api/queries";
import { decimal } from "../logic/format";
import { columnsOf, sparkPath } from "../logic/series";

const day = 24 * 3600_000;
const step = 15 * 60_000;
const width = 120;
const height = 36;

const together = 4;
let running = 0;
const waiting: (() => void)[] = [];

async function inTurn<T>(work: () => Promise<T>): Promise<T> {
  if (running >= together) await new Promise<void>((go) => waiting.push(go));
  else running++;
  try {
    return await work();
  } finally {
    const next = waiting.shift();
    if (next) next();
    else running--;
  }
}

export function Sparkline({ sensorID }: { sensorID: string }) {
  const box = useRef<SVGSVGElement>(null);
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    if (seen || !box.current) return;
    const observer = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) setSeen(true);
    });
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [seen]);
  const { data } = useQuery({
    queryKey: ["spark", sensorID], enabled: seen, staleTime: step, refetchInterval: step, refetchOnWindowFocus: false,
    queryFn: ({ signal }) => inTurn(async () => {
      const end = Date.now();
      return { end, points: await history(sensorID, end - day, end, day / step, signal) };
    }),
  });
  const values = data?.points ?? [];
  const low = Math.min(...values.map((point) => point.min_temperature));
  const high = Math.max(...values.map((point) => point.max_temperature));
  const label = values.length > 0 ? `Temperature of the last 24 hours: ${decimal(low)} to ${decimal(high)} °C` : "No temperatures of the last 24 hours yet";
  const columns = columnsOf(values, "temperature", step / 1000);
  const path = data ? sparkPath(columns, (data.end - day) / 1000, data.end / 1000, width, height) : "";
  return (
    <svg ref={box} class="spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={label}>
      <path d={path} vector-effect="non-scaling-stroke" />
    </svg>
  );
}
